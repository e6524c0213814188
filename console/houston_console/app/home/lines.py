"""The lines of the home screen: a rollout in one or two, and the card of the one at the cursor.

Pure: everything that is shown comes in, and the width decides how.
"""

from collections.abc import Sequence
from typing import NamedTuple

from houston_console.app.drawing.lines import (
    Line,
    Span,
    Tone,
    block,
    fit,
    fit_name,
    line,
    span,
    spread,
    width_of,
)
from houston_console.app.drawing.sparkline import sparkline
from houston_console.app.people.lines import ago, left_note, name_of, others, since, who
from houston_console.app.rollouts.listing import STATES, cost, own_name, reasons, standing, urgency
from houston_console.headless.spoken import score
from houston_shared.need import Need
from houston_shared.safe_text import SafeText
from houston_shared.store.queries.cost import Spent
from houston_shared.task import Budget

ONE_LINE = 180
"""Columns from which a rollout takes one line, where two for each do not fit."""
REASON_BESIDE = 110
"""Columns from which the reason stands beside the name, in the first line of two."""
NAME = 24
"""Cells of a name; less on a narrow screen."""
NARROW_NAME = 20
SPARK = 12
PEOPLE = 26
"""Cells of who looks, in one line."""


class Shown(NamedTuple):
    """One rollout as a list shows it."""

    number: int
    """Its place, from 1."""
    need: Need
    budget: Budget
    marked: bool = False
    """Whether it was chosen to be compared."""
    under_task: bool = False
    """Whether its task stands above it."""


class View(NamedTuple):
    """Who looks, when, and how wide the screen is."""

    me: str
    now: int
    """UTC microseconds."""
    width: int
    lines: int = 2
    """That one rollout takes."""


def hours(seconds: float) -> str:
    """Active time, short: `57m`, `3h05`, `30h`."""
    minutes = int(seconds // 60)
    if minutes < 100:
        return f"{minutes}m"
    return f"{minutes // 60}h{minutes % 60:02}" if minutes % 60 else f"{minutes // 60}h"


def heads(view: View) -> Line:
    """What stands above the list: names of the columns."""
    name = NAME if view.width >= REASON_BESIDE else NARROW_NAME
    words = "why it needs somebody" if view.width >= REASON_BESIDE else ""
    left = f"       {'rollout':<{name + 2}}{words}".rstrip()
    parts = [span(left, "faint")]
    numbers = f"{'steps':>10}{'best':>6}{'last':>6}  {'scores':<{SPARK}}{'active':>7}{'/of':<7}"
    if view.lines == 1:
        numbers += f"{'who is there':<{PEOPLE}}"
    return spread(tuple(parts), line(span(numbers, "faint")), view.width)


def task_line(task: str, shown: Sequence[Need], width: int) -> Line:
    """A task above its rollouts."""
    needy = sum(one.weight > 0 for one in shown)
    count = f"{len(shown)} rollout{'s' * (len(shown) != 1)}"
    tail = f", {needy} need{'s' * (needy == 1)} somebody" if needy else ""
    return spread(
        line(span(" "), span(task, "title")), line(span(f"{count}{tail} ", "faint")), width
    )


def rollout_lines(one: Shown, view: View) -> list[Line]:
    """A rollout in as many lines as `View.lines` says."""
    if view.lines == 1:
        right = (*_numbers(one), *_padded(_people(one.need, view), PEOPLE))
        room = view.width - width_of(right)
        half = (room - width_of(_name(one, NAME))) * 3 // 5
        why = span(f"{fit(_why(one.need), half)}  ", _why_tone(one.need))
        return [spread((*_name(one, NAME), why, *_action(one.need)), right, view.width)]
    people, pad = _people(one.need, view), span("       ")
    reason, action = span(_why(one.need), _why_tone(one.need)), _action(one.need)
    if view.width >= REASON_BESIDE:
        first, second = (*_name(one, NAME), reason), (pad, *action)
    else:
        gap = span(" · " if reason.text and action else "")
        first, second = _name(one, NARROW_NAME), (pad, reason, gap, *action)
    return [spread(first, _numbers(one), view.width), spread(second, people, view.width)]


def _name(one: Shown, width: int) -> Line:
    rollout = one.need.standing.rollout
    glyph, tone = STATES.get(rollout.state, ("?", "dim"))
    name = own_name(rollout.id, rollout.task) if one.under_task else rollout.id
    mark = span("×", "guidance") if one.marked else urgency(one.need)
    number = span(f"{one.number:>3} ", "number")
    return line(
        mark, number, span(f"{glyph} ", tone), span(fit_name(name, width), "strong"), span("  ")
    )


def _why(one: Need) -> str:
    if one.reasons:
        return one.text
    rollout = one.standing.rollout
    return standing(rollout) if rollout.state != "running" else ""


def _why_tone(one: Need) -> Tone:
    mark: Tone = urgency(one).tone
    return mark if one.weight else "dim"


def _action(one: Need) -> Line:
    """What it does now, or did last."""
    acted, rollout = one.standing.acted, one.standing.rollout
    if acted is None:
        return ()
    now = rollout.activity if rollout.state == "running" else ""
    if acted.text.startswith(now) or now in one.text:  # it is said already
        return line(span(acted.text, "dim"))
    return line(span(f"{now}: ", "tool"), span(acted.text, "dim"))


def _numbers(one: Shown) -> Line:
    rollout, budget = one.need.standing.rollout, one.budget
    steps = f"{rollout.steps}/{budget.steps}"
    active = hours(rollout.active_us / 1e6)
    near = rollout.active_us / 1e6 > 0.9 * budget.active_seconds
    scores = [each.score for each in one.need.standing.scores]
    return line(
        span(f"{steps:>10}", "number" if rollout.steps <= 0.9 * budget.steps else "warning"),
        span(f"{score(rollout.best_score) if scores else '–':>6}", "score" if scores else "faint"),
        span(f"{score(rollout.last_score) if scores else '–':>6}", "text" if scores else "faint"),
        span(f"  {sparkline(scores, SPARK):<{SPARK}}", "score"),
        span(f"{active:>7}", "warning" if near else "text"),
        span(f"/{hours(budget.active_seconds):<5} ", "faint"),
    )


def _people(one: Need, view: View) -> Line:
    found, parts = one.standing, []
    for look in others(found, view.me):
        parts.append(span(f"◉{name_of(look.name, look.verified, view.me)} ", "tool"))
    if found.holding is not None and found.holding.holder:
        holder = name_of(found.holding.holder, found.holding.verified, view.me)
        parts.append(span(f"☞{holder} ", "guidance"))
    if left_note(found.holding, view.me):
        parts.append(span("✉ ", "guidance"))
    return line(*parts)


def _padded(parts: Line, width: int) -> Line:
    """Exactly `width` cells."""
    room, kept = width, []
    for part in parts:
        cells = min(room, width_of((part,)))
        kept.append(Span(fit(part.text, cells), part.tone))
        room -= cells
    return (*kept, Span(SafeText(" " * room)))


def card(one: Shown, spent: Sequence[Spent], view: View) -> list[Line]:
    """Everything that is known of the rollout at the cursor from afar."""
    stands, rollout = one.need.standing, one.need.standing.rollout
    glyph, tone = STATES.get(rollout.state, ("?", "dim"))
    where = f"{rollout.task} · {rollout.policy or rollout.engine}"
    head = line(span(f" {glyph} ", tone), span(rollout.id, "strong"), span(f"  {where}  ", "dim"),
                span(standing(rollout), tone))  # fmt: skip
    rows = [head]
    if rollout.parent:
        rows += _hung("⑂", f"branch of {rollout.parent} at step {rollout.parent_step}", "dim", view)
    for text in reasons(one.need):
        rows += _hung("!", text, urgency(one.need).tone, view)
    if stands.acted is not None:
        when = since(stands.acted.at, view.now)
        text = f"step {stands.acted.step}, {when} ({ago(stands.acted.at, view.now)}): "
        rows += _hung("▸", text + stands.acted.text, "dim", view)
    if stands.new_steps:
        many = f"{stands.new_steps} step{'s' * (stands.new_steps > 1)}"
        rows += _hung("+", f"{many} since you were here", "text", view)
    for mark, text in who(stands, view.me, view.now):
        rows += _hung(mark, text, "guidance_text" if mark == "✉" else "text", view)
    if spent:
        rows += _hung("◷", "attention: " + "; ".join(cost(each, view.me) for each in spent), "dim",
                      view)  # fmt: skip
    return rows


def _hung(mark: str, text: str, tone: Tone, view: View) -> list[Line]:
    pad = span("   ")
    rows = block(text, view.width - 3, tone)
    return [(span(f" {mark} ", "key") if not at else pad, *row) for at, row in enumerate(rows)]


def summary(needs: Sequence[Need], at_home: Sequence[str], me: str, seen: bool = True) -> Line:
    """The lower edge of the frame: how many need somebody, who else is at home, what is yours.

    seen: whether others see that this console is here.
    """
    needy = sum(one.weight > 0 for one in needs)
    parts = [f"{needy} of {len(needs)} need somebody" if needy else "nobody is needed"]
    mine = [one.standing.holding for one in needs if one.standing.holding]
    yours = sum(one.holder == me for one in mine)
    if yours:
        parts.append(f"you look after {yours}")
    if at_home:
        parts.append(f"also at home: {', '.join(at_home)}")
    if not seen:
        parts.append("others do not see you")
    return line(span("   ".join(parts), "dim"))
