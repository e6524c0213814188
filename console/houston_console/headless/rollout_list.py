"""`houston rollout list`: all rollouts, who needs a person most first."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import get_args

import msgspec

from houston_console.headless import options, standing_now
from houston_console.headless.page import GAP, Page, Span, span
from houston_console.headless.spoken import cut, duration, score, standing, why
from houston_shared import out
from houston_shared.clock import iso, now_us
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.need import Need, ordered
from houston_shared.person import myself
from houston_shared.records import RolloutState
from houston_shared.store import last_known, views
from houston_shared.store.queries import archived, home, rollouts
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader

REASON = 60
"""Characters of a reason where there is no terminal whose width would decide; --json has all."""
DOING = 40
"""Characters of what the worker does now, and of why somebody is needed."""
SCORES = ("best#", "last#")
TITLES = (
    "rollout",
    "task",
    "steps#",
    "new#",
    *SCORES,
    "active#",
    "need",
    "people",
    "doing",
    "state",
)

RARE = ("new#", "people", "doing")
"""Columns that are left out where they are empty."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--task`, `--state`, `--by-task`, `--json`."""
    parser.add_argument("--task", default="", metavar="NAME", help="only rollouts of this task")
    states = get_args(RolloutState)
    parser.add_argument("--state", default="", choices=states, help="only rollouts in this state")
    parser.add_argument(
        "--by-task", action="store_true", help="task by task, that with the most need first"
    )
    options.as_json(parser, "one JSON line a rollout")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """List them."""
    me = myself(loaded.config.console.name)
    plan = home.standings(me, 0, arguments.task, arguments.state, bodies=arguments.json)
    with Reader(loaded.home) as reader:
        stands = reader.run(plan)
        archives = reader.run(archived.all_places()) if stands else {}
        stood = last_known.as_of(reader)
    found = ordered(standing_now.as_it_is(stands, loaded.home), now_us())
    if arguments.by_task:
        found = _by_task(found)
    if arguments.json:
        for one in found:
            id = one.standing.rollout.id
            archive = {"archive": archives[id]} if id in archives else {}
            as_of = {"as_of": stood and iso(stood)}
            out.json_line(
                {**views.rollout(one.standing.rollout), **views.need(one), **archive, **as_of}
            )
    elif found:
        page = Page()
        tables = groupby(found, _task) if arguments.by_task else [("", iter(found))]
        for number, (task, needs) in enumerate(tables):
            if task:
                page.line("\n" if number else "", span(task, "name"))
            _table(page, list(needs), archives, without_task=bool(task))
        if stood:
            out.note(last_known.sentence(stood))
    elif arguments.task or arguments.state:
        out.note("There is no such rollout.\n  next: houston rollout list")
    else:
        out.note("No rollout was started in this home.\n  next: houston rollout start TASK.toml")
    return int(ExitCode.DONE)


def _task(one: Need) -> str:
    return one.standing.rollout.task


def _by_task(found: list[Need]) -> list[Need]:
    """Tasks in the order of their neediest rollout; within one as before."""
    first = {task: number for number, task in reversed(list(enumerate(map(_task, found))))}
    return sorted(found, key=lambda one: first[_task(one)])


def _table(
    page: Page, found: list[Need], archives: dict[str, str], without_task: bool = False
) -> None:
    rows = [_row(one) for one in found]
    # A column that nobody fills only takes room.
    used = [
        number
        for number, title in enumerate(TITLES[:-1])
        if (title not in RARE or any(row[number].text for row in rows))
        and not (without_task and title == "task")
    ]
    titles = [*(TITLES[n] for n in used), TITLES[-1]]
    rows = [tuple(row[n] for n in used) for row in rows]
    room = _room(page, titles, rows)
    states = [
        _state(one.standing.rollout, room, one.standing.rollout.id in archives) for one in found
    ]
    page.table(titles, [(*row, state) for row, state in zip(rows, states, strict=True)])


def _row(need: Need) -> tuple[Span, ...]:
    stands, one = need.standing, need.standing.rollout
    held = stands.holding.holder if stands.holding else ""
    people = [f"{held} holds it"] if held else []
    people += [look.name for look in stands.lookers]
    return (
        span(one.id, "name"),
        span(
            f"{one.task} (branch of {one.parent} at {one.parent_step})" if one.parent else one.task
        ),
        span(one.steps),
        span("" if stands.new_steps is None else f"+{stands.new_steps}"),
        span(score(one.best_score)),
        span(score(one.last_score)),
        span(duration(one.active_us / 1_000_000)),
        span(cut(why(need), DOING), "bad"),
        span(cut(", ".join(people), DOING), "person"),
        span("" if rollouts.stands(one) else cut(one.activity, DOING)),
    )


def _state(one: Rollout, room: int | None, archived: bool) -> Span:
    """How it stands; on a terminal all of it fits the line, elsewhere the reason is short."""
    if room is None:
        one = msgspec.structs.replace(one, reason=cut(one.reason, REASON))
    return standing(one, room, archived)


def _room(page: Page, titles: Sequence[str], rows: list[tuple[Span, ...]]) -> int | None:
    """Characters that a terminal has left for the last column; None where there is none."""
    if not sys.stdout.isatty():
        return None
    taken = sum(width + GAP for width in page.widths(titles[:-1], rows))
    return shutil.get_terminal_size().columns - taken
