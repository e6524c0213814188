"""The lines of the small lists: rollouts, the guidance queue, files and searches. Pure."""

from collections.abc import Sequence

from houston_console.app.drawing.lines import Line, Span, Tone, block, line, span, spread, width_of
from houston_console.app.people.lines import who
from houston_console.app.rollouts.order import Row
from houston_console.headless.spoken import score
from houston_shared.need import Need
from houston_shared.records import ENDED
from houston_shared.store.queries.cost import Spent
from houston_shared.store.queries.rollouts import Rollout

STATES: dict[str, tuple[str, Tone]] = {
    "running": ("●", "success"),
    "paused": ("‖", "warning"),
    "queued": ("○", "dim"),
    "finished": ("✓", "dim"),
    "failed": ("✗", "error"),
    "cancelled": ("⊘", "faint"),
}
"""Glyph and tone of each state of a rollout."""
URGENT = 40.0
"""Weight from which a need is shown as one that should not wait."""
LAST_KNOWN = "when the daemon was last here"
"""What is said of a rollout that ran then: whether it runs now is not known without it."""
REASON_LINES = 5
"""Lines of a state and its reason on the card."""


def rollout_line(one: Row, width: int, chosen: str, first: bool = False) -> Line:
    """A line of the selector: a task (the first names the columns), or a rollout under it."""
    if one.need is None:
        heads = line(span("best steps " if first else "", "faint"))
        return spread(line(span(" "), span(one.task, "title")), heads, width)
    rollout = one.need.standing.rollout
    glyph, tone = STATES.get(rollout.state, ("?", "dim"))
    name: Tone = "strong" if rollout.id == chosen else "text"
    shown = own_name(rollout.id, rollout.task)
    left: Line = (urgency(one.need), span(f"{glyph} ", tone), span(shown, name))
    marks: list[Span] = [span(" ")]
    if one.need.standing.queued:
        marks.append(span(f"✎{one.need.standing.queued} ", "guidance"))
    if rollout.errors:
        marks.append(span(f"✗{rollout.errors} ", "error"))
    if rollout.best_score is not None:
        marks.append(span(f"{score(rollout.best_score):>5} ", "score"))
    marks.append(span(f"{rollout.steps:>4} ", "number"))
    return spread(left, tuple(marks), width)


def urgency(one: Need) -> Span:
    """One cell: how much a rollout needs somebody."""
    if one.weight >= URGENT:
        return span("▲", "error")
    return span("△", "warning") if one.weight else span(" ")


def own_name(rollout: str, task: str) -> str:
    """What tells a rollout from the others of its task: the id without the task's name."""
    return rollout.removeprefix(f"{task}-") or rollout


def standing(one: Rollout, down: bool = False) -> str:
    """A rollout's state, who owns its pause, and why; for what runs without a daemon: when."""
    said = one.state
    if one.paused_by:
        said += f" by {one.paused_by}"
    if one.cancelling and one.state not in ENDED:
        said += f", being cancelled by {one.cancelling}"
    if one.reason == "finish":
        said += ": the agent called finish"
    elif one.reason:  # which may say all of it: "cancelled by person:ada: …"
        said = one.reason if one.reason.startswith(one.state) else f"{said}: {one.reason}"
    return f"{said} {LAST_KNOWN}" if down and one.state == "running" else said


def ending(one: Rollout) -> tuple[str, Tone]:
    """What stands after the newest step of a rollout that does not go on: why; else nothing."""
    if one.state == "running" and not one.cancelling:
        return "", "text"
    glyph, tone = STATES.get(one.state, ("?", "dim"))
    return f"{glyph} {standing(one)}", tone


def rollout_facts(
    need: Need, spent: Sequence[Spent], down: bool, me: str, now: int, width: int
) -> list[Line]:
    """What the selector says about the rollout under its cursor; down: there is no daemon.

    spent: what people gave to it. me: the name of who sits here. now: UTC microseconds.
    """
    one = need.standing.rollout
    glyph, tone = STATES.get(one.state, ("?", "dim"))
    rows = _hung(f" {glyph} ", tone, standing(one, down), tone, width)
    if len(rows) > REASON_LINES:
        more = span("   … in full after the newest step", "dim")
        rows = [*rows[: REASON_LINES - 1], line(more)]
    scores = f"{score(one.best_score)} best, {score(one.last_score)} last"
    facts = {
        "now": one.activity if one.state == "running" and not down else "",
        "id": one.id,
        "active": duration(one.active_us),
        "score": scores if one.last_score is not None else "none yet",
        "engine": one.policy or one.engine,
    }
    for name, value in facts.items():
        if value:
            rows += _hung(f"   {name:<7} ", "key", value, "text", width)
    for reason in reasons(need)[:3]:
        rows += _hung("   ! ", "warning", reason, "warning", width)
    for head, text in who(need.standing, me, now):
        rows += _hung(f"   {head} ", "key", text, "text", width)
    rows += [row for each in spent for row in _hung("   ◷ ", "key", cost(each, me), "dim", width)]
    return rows


def reasons(need: Need) -> list[str]:
    """Why somebody should look, but what the first line says already."""
    one = need.standing.rollout
    found = [each.text for each in need.reasons if each.kind not in ("paused", "failed", "gpu")]
    if need.standing.queued:
        found.append(f"{need.standing.queued} waiting")
    if one.errors:
        found.append(f"{one.errors} with errors")
    if one.sandbox == "none":
        found.append("no sandbox")
    return found


def cost(one: Spent, me: str) -> str:
    """What a rollout had of one person: `ada 42 min, 118 words`."""
    name = "you" if one.name == me else one.name if one.verified else f"{one.name}?"
    parts = [duration(one.active_us)] if one.active_us or not one.words else []
    if one.words:
        parts.append(f"{one.words} word{'s' * (one.words > 1)}")
    return f"{name} {', '.join(parts)}"


def _hung(head: str, head_tone: Tone, text: str, tone: Tone, width: int) -> list[Line]:
    """Text behind a head, wrapped under itself."""
    first = span(head, head_tone)
    pad = span(" " * width_of((first,)))
    wrapped = block(text, width - width_of((first,)), tone)
    return [(pad if at else first, *one) for at, one in enumerate(wrapped)]


def duration(microseconds: int) -> str:
    """Active time for people: `7 min`, `3 h 05`; no seconds, they would be drawn every second."""
    minutes = microseconds // 60_000_000
    if not minutes:
        return "under a minute"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02}"
