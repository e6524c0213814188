"""What happened since somebody was here, as lines: one to be folded to, and all of it. Pure."""

from typing import NamedTuple

from houston_console.app.drawing.lines import Line, Span, Tone, line, span, spread, width_of
from houston_console.app.people.lines import ago, since
from houston_console.headless.spoken import score
from houston_shared.store.queries.since import Happening, Heard, Scored, Since, Touched

KINDS: dict[str, tuple[str, Tone]] = {
    "error": ("✗", "error"),
    "attention": ("!", "warning"),
    "evaluation": ("★", "score"),
    "guidance": ("✎", "guidance"),
    "fork": ("↳", "fork"),
    "verdict": ("✓", "dim"),
    "claim": ("☞", "guidance"),
    "bookmark": ("⚑", "dim"),
    "state": ("●", "dim"),
    "cancel": ("⊘", "warning"),
}
"""Glyph and tone of each kind of event."""


class Visit(NamedTuple):
    """What happened, and since when."""

    happened: Since
    seen_at: int
    """When this person was here before, UTC microseconds; 0 for never."""


class Entry(NamedTuple):
    """A line of the list, and the step it leads to."""

    line: Line
    step: int = 0
    """0 for none."""
    head: bool = False
    """Whether it stands over others."""


def nothing(visit: Visit) -> bool:
    """Whether there is nothing to tell."""
    return not visit.happened.steps and not visit.happened.events


def strip(
    visit: Visit, now: int, width: int, unfolded: bool, named: tuple[str, str] = ("", "")
) -> Line:
    """One line that says it all, as far as it fits. named: the keys that unfold and walk."""
    keys = line(
        span(f"  {named[0]} ", "tool"),
        span("fold" if unfolded else "show", "dim"),
        span(f" {named[1]} ", "tool"),
        span("next ", "dim"),
    )
    room = width - width_of(keys)
    leads = ["new to you:"]
    if visit.seen_at:
        when = ago(visit.seen_at, now)
        leads = [f"since you were here, {when}:", f"since {when}:"]
    facts = _facts(visit.happened)
    found = [_joined(lead, facts, room) for lead in leads]
    whole = next((line for line, left_out in found if not left_out), found[-1][0])
    return spread(whole, keys, width)


def _joined(lead: str, facts: list[Line], room: int) -> tuple[Line, int]:
    """The facts that fit behind the lead, and how many were left out."""
    parts, left_out = [span(f" {lead}", "dim")], 0
    for fact in facts:
        if width_of([*parts, span("  "), *fact]) > room:
            left_out += 1
        else:
            parts += [span("  "), *fact]
    return tuple(parts), left_out


def _facts(one: Since) -> list[Line]:
    found = [line(span(many(one.steps, "step"), "strong"))]
    scores = [each.score for each in one.evaluations if each.score is not None]
    if one.evaluations:
        best = f", best {score(max(scores))}" if scores else ", no score"
        before = f" (was {score(one.best_before)})" if one.best_before is not None else ""
        found.append(line(span(f"★ {len(one.evaluations)}{best}{before}", "score")))
    if one.errors:
        found.append(line(span(f"✗ {many(one.errors, 'error')}", "error")))
    if one.guidance:
        found.append(line(span(f"✎ {len(one.guidance)} heard", "guidance")))
    if one.files:
        found.append(line(span(f"± {many(len(one.files) + one.more_files, 'file')}", "dim")))
    return found


def many(count: int, what: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {what}{'s' * (count != 1)}"


def entries(visit: Visit, now: int, width: int) -> list[Entry]:
    """All of it: scores, guidance and what followed, files, then every event in order."""
    one = visit.happened
    found: list[Entry] = []
    if one.evaluations:
        found.append(_head("Evaluations"))
        found += [_scored(each, now) for each in one.evaluations]
    if one.guidance:
        found.append(_head("Guidance that was heard, and what followed"))
        found += [entry for each in one.guidance for entry in _heard(each, now)]
    if one.files:
        more = f", {one.more_files} more not shown" if one.more_files else ""
        found.append(_head(f"Files that changed most{more}"))
        found += [_touched(each) for each in one.files]
    if one.events:
        found.append(_head("In the order in which it happened"))
        found += [_event(each, now) for each in one.events]
    return [entry._replace(line=spread(entry.line, (), width)) for entry in found]


def _head(text: str) -> Entry:
    return Entry(line(span(f" {text}", "title")), head=True)


def _at(step: int, at: int, now: int) -> list[Span]:
    where = f"{step:>7} " if step else "        "
    return [span(where, "number"), span(f"{since(at, now)}  ", "faint")]


def _scored(one: Scored, now: int) -> Entry:
    said = score(one.score) if one.score is not None else f"no score: {one.state}"
    tone: Tone = "score" if one.score is not None else "warning"
    return Entry(line(*_at(one.step, one.at, now), span(said, tone)), one.step)


def _heard(one: Heard, now: int) -> list[Entry]:
    head = [*_at(one.step, one.at, now), span(f"{one.author}: ", "guidance")]
    found = [Entry(line(*head, span(" ".join(one.text.split()), "guidance_text")), one.step)]
    if one.followed is not None:
        told = span(f"→ {one.followed.text}", "text")
        found.append(
            Entry(line(*_at(one.followed.step, one.followed.at, now), told), one.followed.step)
        )
    return found


def _touched(one: Touched) -> Entry:
    return Entry(
        line(
            span(f"{one.step:>7} ", "number"),
            span(f"{one.path}  ", "text"),
            span(f"{many(one.times, 'change')} ", "dim"),
            span(f"+{one.added} ", "added"),
            span(f"−{one.removed}", "removed"),
        ),
        one.step,
    )


def _event(one: Happening, now: int) -> Entry:
    glyph, tone = KINDS.get(one.kind, ("·", "dim"))
    return Entry(
        line(*_at(one.step, one.at, now), span(f"{glyph} ", tone), span(one.text, "text")), one.step
    )
