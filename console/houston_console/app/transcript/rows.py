"""The lines of a trajectory: a step on one folded line, and everything of it when unfolded.

Pure: from records to lines of a given width. It reads nothing and knows no widget.
"""

from datetime import datetime
from typing import Any

import msgspec

from houston_console.app.drawing.lines import (
    Line,
    Span,
    block,
    fit,
    line,
    span,
    spread,
    width_of,
    wrap,
)
from houston_console.app.files import diffs
from houston_console.app.transcript import margin
from houston_console.app.transcript.records import NOTHING, Beside, StepRow
from houston_console.headless.spoken import score
from houston_shared.records import Call, Delivered, FileChange, Result, StepRecord
from houston_shared.safe_text import SafeText, safe
from houston_shared.store.queries import aside

ERROR, GUIDANCE, SCORE, FORK, ATTENTION = "✗", "✎", "★", "↳", "!"
FOLDED, UNFOLDED, RUNNING = "▸", "▾", "◌"
CHOSEN = "▌ "
GUTTER = 8
"""Columns before the text of an unfolded step: marker, number, space."""
_INDENT = Span(SafeText("   "))
_DIFF = Span(SafeText("  "))


def folded(row: StepRow, width: int, unfolded: bool = False) -> Line:
    """One line: number, flags, tools, the thought's first words; files and score on the right."""
    marker = RUNNING if row.open else UNFOLDED if unfolded else FOLDED
    tools = row.tools.replace(",", ", ") or ("…" if row.open else "no action")
    room = min(20, max(11, width // 6))
    left = line(
        span(f"{marker} ", "title" if unfolded else "faint"),
        span(f"{row.step:>5} ", "number"),
        *_flags(row),
        Span(fit(tools, room), "error" if row.errors else "tool"),
        "  ",
        span(" ".join(safe(row.thought).split()), "strong" if unfolded else "text"),
    )
    return spread(left, _right(row), width)


def as_chosen(parts: Line) -> Line:
    """A folded line of a step that a verdict would be on: a bar before it."""
    return (span(CHOSEN, "title"), *parts[1:])


def _flags(row: StepRow) -> list[Span]:
    """A column for each flag, so that the eye runs down it."""
    signals = [one for one in row.attention.split(",") if one and one != "error"]
    worst = span(ERROR, "error") if row.errors else span(ATTENTION if signals else " ", "warning")
    return [
        worst,
        span(GUIDANCE if row.guided else " ", "guidance"),
        span(SCORE if row.score is not None else " ", "score"),
        span(FORK if row.forked else " ", "fork"),
        margin.mark(row),
        *margin.verdict(row),
        span(" "),
    ]


def _right(row: StepRow) -> Line:
    parts: list[Span] = []
    if row.files:
        parts += [span("  ±", "dim"), span(f"{row.files}", "dim")]
        parts += [span(f" +{row.added}", "added")] if row.added else []
        parts += [span(f" −{row.removed}", "removed")] if row.removed else []
    if row.score is not None:
        parts.append(span(f"  {score(row.score)}", "score"))
    return (*parts, span(" ")) if parts else ()


def loading(step: int, width: int) -> Line:
    """The line of a step that is being read."""
    return spread(line(span(f"  {step:>5} ", "faint"), span("·", "faint")), (), width)


def head_line(instructions: str, width: int, unfolded: bool = False) -> Line:
    """Row 0: what the task asks."""
    left = line(
        span(f"{UNFOLDED if unfolded else FOLDED} ", "title" if unfolded else "faint"),
        span(" task      ", "key"),
        span(" ".join(safe(instructions).split()), "strong"),
    )
    return spread(left, (), width)


def head_lines(instructions: str, system: str, width: int) -> list[Line]:
    """Row 0 unfolded: the instructions, then the system prompt."""
    found = [head_line(instructions, width, True)]
    found += _barred("task", "key", instructions, "text", width)
    if system:
        found += _barred("system prompt", "dim", system, "dim", width)
    return [*found, ()]


def unfolded(row: StepRow, record: StepRecord, width: int, beside: Beside = NOTHING) -> list[Line]:
    """Everything of a step: its folded line, thought, calls with results, guidance, files, and
    what people and judges said of it."""
    found = [folded(row, width, True)]
    sample = record.sample
    if sample.thought.strip():
        found += _barred("", "text", sample.thought.strip(), "text", width, bar="title")
    if sample.malformed:
        found += _barred("not an action", "error", sample.malformed, "error", width)
    results = {result.call.id: result for result in record.results}
    for call in sample.calls:
        found += _call(call, width)
        if call.id in results:
            found += _result(results[call.id], width)
        else:
            found.append(line(_INDENT, span("  ⋯ no result yet", "dim")))
    if record.observation is not None and record.observation.tail.strip():
        found += _barred("", "faint", record.observation.tail.strip(), "dim", width, bar="faint")
    for message in record.guidance:
        found += guidance_lines(message, width)
    if record.observation is not None:
        found += _files(record.observation.files, record.observation.more_files, width)
        found += margin.signals(record.observation, width)
    found += margin.beside(beside, width)
    for mark in record.aside:
        found += block(f"{ATTENTION} {aside.said(mark)}", width, "warning", _INDENT)
    return [*found, *_facts(record, width), ()]


def _barred(
    title: str, title_tone: Any, text: str, tone: Any, width: int, bar: Any = "faint"
) -> list[Line]:
    edge = span("   │ ", bar)
    head = [line(_INDENT, span(title, title_tone))] if title else []
    return head + block(text, width, tone, edge)


def _call(call: Call, width: int) -> list[Line]:
    found = [line(_INDENT, span("→ ", "tool"), span(call.name, "tool"))]
    if call.error:
        found += block(call.error, width, "error", span("     ", "error"))
    for key, value in call.arguments.items():
        found += _argument(key, value, width)
    return found


def _argument(key: str, value: object, width: int) -> list[Line]:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    label = span(f"     {key} ", "key")
    room = width - width_of((label,))
    if "\n" not in text and len(text) <= room:
        return [line(label, span(text))]
    return [line(label), *block(text, width, "text", span("       ", "faint"))]


def _result(result: Result, width: int) -> list[Line]:
    tone: Any = "success" if result.success else "error"
    mark = "←" if result.success else f"← {ERROR}"
    facts = [span(f" {result.seconds:.1f} s", "faint")]
    if result.forged_tags:
        facts.append(span(f"  {ATTENTION} {result.forged_tags} forged tag disarmed", "warning"))
    title = line(_INDENT, span(f"{mark} {result.kind}", tone), *facts)
    return [title, *block(result.text, width, "dim", span("   │ ", tone))]


def guidance_lines(message: Delivered, width: int) -> list[Line]:
    """A person's words, as no other text is shown: a heavy bar and their name."""
    bar = span("   ┃ ", "guidance")
    title = line(bar, span(f"{GUIDANCE} {message.author}", "guidance"))
    return [title, *block(message.text, width, "guidance_text", bar)]


def _files(files: tuple[FileChange, ...], more: int, width: int) -> list[Line]:
    found: list[Line] = []
    for change in files:
        counts = line(span(f"  +{change.added}", "added"), span(f" −{change.removed} ", "removed"))
        note = span(f" {change.note}", "dim") if change.note else span("")
        left = line(_INDENT, span("± ", "dim"), span(change.path, "key"), note)
        found.append(spread(left, counts, width))
        rows = diffs.rows(change.path, change.diff)
        found += [(_DIFF, *one) for one in diffs.grounded(rows, width - width_of((_DIFF,)))]
    if more:
        found.append(line(_INDENT, span(f"± and {more} more files", "dim")))
    return found


def _facts(record: StepRecord, width: int) -> list[Line]:
    """The last line of a step: how it was sampled."""
    sample = record.sample
    parts = [sample.policy or sample.engine, sample.drift, sample.finish_reason]
    if sample.prompt_tokens is not None:
        cached = f" ({sample.cached_tokens:,} cached)" if sample.cached_tokens is not None else ""
        parts.append(f"{sample.prompt_tokens:,} prompt tokens{cached}")
    when = datetime.fromisoformat(record.at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    parts += [f"{sample.seconds:.1f} s", when]
    text = " · ".join(part for part in parts if part)
    return [line(_INDENT, Span(part, "faint")) for part in wrap(text, width - 3)]
