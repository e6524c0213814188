"""Rollouts as a table that fits its terminal: what matters least goes first, then words are cut."""

import shutil
import sys
from collections.abc import Sequence

import msgspec

from houston_console.headless.page import GAP, Page, Span, span
from houston_console.headless.spoken import cut, duration, score, standing, why
from houston_shared.need import Need
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Rollout

REASON = 60
"""Characters of a reason where there is no terminal whose width would decide; --json has all."""
WORDS = 40
"""Characters of other words."""
LEAST_NEED = 16
"""Characters of the need that a narrow terminal leaves; a column goes before it has fewer."""
RARE = ("new#", "people", "doing", "need")
"""Columns that are left out where they are empty."""
DROPPED = ("doing", "task", "active#", "last#", "new#", "people", "best#", "steps#")
"""In this order columns go where the terminal is narrow."""

Columns = dict[str, list[Span]]


def show(page: Page, found: Sequence[Need], archives: dict[str, str], by_task: bool) -> None:
    """Print them; archives: where archived ones lie. by_task: the task is said above the table."""
    columns = _columns(found)
    left_out = {title for title in RARE if not any(cell.text for cell in columns[title])}
    left_out |= {"task"} if by_task else set()
    columns = {title: cells for title, cells in columns.items() if title not in left_out}
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if width is not None:
        states = [_state(one, 0, archives) for one in found]
        columns = _fitting(columns, width - max(len(one.text) for one in states))
    room = None if width is None else width - _taken(columns)
    columns["state"] = [_state(one, room, archives) for one in found]
    page.table(tuple(columns), list(zip(*columns.values(), strict=True)))


def _columns(found: Sequence[Need]) -> Columns:
    rows = [_row(one) for one in found]
    return {title: [row[title] for row in rows] for title in rows[0]}


def _row(need: Need) -> dict[str, Span]:
    stands, one = need.standing, need.standing.rollout
    held = stands.holding.holder if stands.holding else ""
    people = [f"{held} holds it"] if held else []
    people += [look.name for look in stands.lookers]
    branch = f" (branch of {one.parent} at {one.parent_step})" if one.parent else ""
    return {
        "rollout": span(one.id, "name"),
        "task": span(f"{one.task}{branch}"),
        "steps#": span(one.steps),
        "new#": span("" if stands.new_steps is None else f"+{stands.new_steps}"),
        "best#": span(score(one.best_score)),
        "last#": span(score(one.last_score)),
        "active#": span(duration(one.active_us / 1_000_000)),
        "need": span(cut(why(need), WORDS), "bad"),
        "people": span(cut(", ".join(people), WORDS), "person"),
        "doing": span("" if rollouts.stands(one) else cut(one.activity, WORDS)),
    }


def _fitting(columns: Columns, width: int) -> Columns:
    """The columns that a width has room for, all of whose rows are one line."""
    for title in (*DROPPED, ""):
        over = _taken(columns) - width
        needs = columns.get("need", [])
        longest = max((len(cell.text) for cell in needs), default=0)
        if over <= 0:
            break
        if needs and (longest - over >= min(LEAST_NEED, longest) or not title):
            room = max(LEAST_NEED, longest - over)
            return {**columns, "need": [span(cut(one.text, room), one.tone) for one in needs]}
        columns = {name: cells for name, cells in columns.items() if name != title}
    return columns


def _taken(columns: Columns) -> int:
    """How wide they are, with what is between them and the next."""
    widths = Page.widths(tuple(columns), list(zip(*columns.values(), strict=True)))
    return sum(width + GAP for width in widths)


def _state(need: Need, room: int | None, archives: dict[str, str]) -> Span:
    """How it stands; on a terminal all of it fits the line, elsewhere the reason is short."""
    one: Rollout = need.standing.rollout
    if room is None:
        one = msgspec.structs.replace(one, reason=cut(one.reason, REASON))
    return standing(one, room, one.id in archives)
