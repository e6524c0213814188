"""The lines of the small lists: rollouts, the guidance queue, files and searches. Pure."""

from houston_console.app.lines import Line, Span, Tone, fit, line, plain, span, spread
from houston_console.app.records import FileRow
from houston_console.app.state import Entry, Listed
from houston_shared import real_user
from houston_shared.records import Delivered
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.queries.world import Search

STATES: dict[str, tuple[str, Tone]] = {
    "running": ("●", "success"),
    "paused": ("‖", "warning"),
    "queued": ("○", "dim"),
    "finished": ("✓", "dim"),
    "failed": ("✗", "error"),
    "cancelled": ("⊘", "faint"),
}
"""Glyph and tone of each state of a rollout."""
ENTRIES: dict[str, tuple[str, Tone]] = {
    "unsent": ("◌", "warning"),
    "refused": ("✗", "error"),
    "queued": ("○", "guidance"),
    "delivered": ("●", "success"),
    "withdrawn": ("⊘", "faint"),
}
"""Glyph and tone of each state of guidance."""
_MODES = {"next": "", "wake": "wake ", "interrupt": "interrupt "}


def rollout_line(one: Listed, width: int, chosen: str, first: bool = False) -> Line:
    """A line of the selector: a task (the first names the columns), or a rollout under it."""
    if one.rollout is None:
        heads = line(span("best steps " if first else "", "faint"))
        return spread(line(span(" "), span(one.task, "title")), heads, width)
    rollout = one.rollout
    glyph, tone = STATES.get(rollout.state, ("?", "dim"))
    name = "strong" if rollout.id == chosen else "text"
    left = line(span(" "), span(f"{glyph} ", tone), span(short(rollout.id), name))  # type: ignore[arg-type]
    marks: list[Span] = [span(" ")]
    if one.waiting:
        marks.append(span(f"✎{one.waiting} ", "guidance"))
    if rollout.errors:
        marks.append(span(f"✗{rollout.errors} ", "error"))
    if rollout.best_score is not None:
        marks.append(span(f"{rollout.best_score:5.1f} ", "score"))
    marks.append(span(f"{rollout.steps:>4} ", "number"))
    return spread(left, tuple(marks), width)


def short(rollout: str) -> str:
    """An id as the selector has room for."""
    return rollout if len(rollout) <= 16 else rollout[:15] + "…"


def rollout_facts(one: Rollout, reasons: tuple[str, ...], width: int) -> list[Line]:
    """What the selector says about the rollout under its cursor."""
    glyph, tone = STATES.get(one.state, ("?", "dim"))
    state = f"{one.state}: {one.reason}" if one.reason else one.state
    scores = f"{_score(one.best_score)} best  {_score(one.last_score)} last"
    rows = [
        line(span(f" {glyph} ", tone), span(state, tone)),
        line(span("   active  ", "key"), span(duration(one.active_us))),
        line(span("   score   ", "key"), span(scores)),
        line(span("   engine  ", "key"), span(one.policy or one.engine)),
    ]
    if one.activity and one.state == "running":
        rows.insert(1, line(span("   now     ", "key"), span(one.activity)))
    rows += [line(span("   ! ", "warning"), span(reason, "warning")) for reason in reasons[:3]]
    return [spread(row, (), width) for row in rows]


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.1f}"


def duration(microseconds: int) -> str:
    """Active time for people: `7 min`, `3 h 05`; no seconds, they would be drawn every second."""
    minutes = microseconds // 60_000_000
    if not minutes:
        return "under a minute"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02}"


def entry_line(one: Entry, width: int) -> Line:
    """One message of the queue: state, who, what."""
    glyph, tone = ENTRIES[one.state]
    state = f"step {one.step}" if one.state == "delivered" else one.state
    author = one.author if one.verified else f"{one.author}?"
    left = line(
        span(f" {glyph} ", tone),
        Span(fit(state, 11), tone),
        span(_MODES[one.mode], "warning"),
        span(f"{author}  ", "key"),
        span(one.text, "faint" if one.state == "withdrawn" else "text"),
    )
    right = line(span(f" {one.reason} ", "error")) if one.reason else ()
    return spread(left, _cut(right, width // 2), width)


def _cut(parts: Line, width: int) -> Line:
    """At most `width` cells of a line."""
    text = plain(parts)
    return parts if len(text) <= width or not parts else (Span(fit(text, width), parts[0].tone),)


def as_heard(text: str) -> str:
    """The exact text that the agent will see for a message."""
    return real_user.render([Delivered(id="", author="", text=text)]).strip("\n")


def file_line(one: FileRow, width: int) -> Line:
    """One file over the rollout."""
    glyph = {"added": "+", "removed": "−"}.get(one.kind, "±")
    right = line(
        span(f" {one.changes}× ", "faint"),
        span(f"+{one.added}", "added"),
        span(f" −{one.removed} ", "removed"),
        span(f"{one.last_step:>5} ", "number"),
    )
    return spread(line(span(f" {glyph} ", "dim"), span(one.path)), right, width)


def search_line(one: Search, width: int) -> Line:
    """One search that the agent made."""
    right = line(span(f" {one.results} found ", "faint"), span(f"{one.step:>5} ", "number"))
    left = line(span(" ⌕ ", "dim"), span(f"{one.kind} ", "tool"), span(one.query))
    return spread(left, right, width)
