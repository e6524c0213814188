"""The lines of a step: folded on one line, or unfolded with thought, calls, results and verdicts.

Pure: from records to lines of a given width. Flags, verdict marks, bookmarks and notes in the
margin have a glyph each. Diffs are rendered by `panes.diff_rendering`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from rich.cells import cell_len

from houston_console.commands import step_outcomes
from houston_console.commands.rollout_summary import drift_words, format_score
from houston_console.panes import diff_rendering
from houston_console.transcript.trajectory_reader import (
    NO_ANNOTATIONS,
    FoldedStepRow,
    FoldMarks,
    StepAnnotations,
)
from houston_console.widgets.styled_text import (
    TextLine,
    TextSpan,
    Tone,
    fit_text,
    justify_line,
    line,
    line_width,
    span,
    text_block,
    wrap_text,
)
from houston_shared.records import (
    DeliveredGuidance,
    FileChange,
    ObservationBody,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.safe_text import SafeText, safe
from houston_shared.store import step_json, step_queries
from houston_shared.store.annotation_queries import BookmarkRow, NoteRow, SourceVerdict
from houston_shared.times_and_counts import format_cost, local_time, pluralize

ATTENTION_GLYPH, BOOKMARK_GLYPH, NOTE_GLYPH = "!", "⚑", "¶"
KEEP_GLYPH, MASK_GLYPH = "✓", "∅"
SOURCE_LETTERS = {"human": "h", "judge": "j", "rule": "r"}
VERDICT_GLYPHS: dict[str, tuple[str, Tone]] = {
    "keep": (KEEP_GLYPH, "success"),
    "mask": (MASK_GLYPH, "warning"),
}
_MARGIN_INDENT = TextSpan(SafeText("   "))


def margin_mark(row: FoldedStepRow) -> TextSpan:
    """One column: a note outranks a bookmark, which it may hang on."""
    return span(NOTE_GLYPH if row.has_note else BOOKMARK_GLYPH if row.has_bookmark else " ", "key")


def verdict_mark(row: FoldedStepRow) -> tuple[TextSpan, TextSpan]:
    """Two columns: what counts at the step, and who says so (h person, j judge, r rule)."""
    if not row.verdict:
        return span(" "), span(" ")
    glyph, tone = VERDICT_GLYPHS["keep" if row.verdict.endswith("1") else "mask"]
    return span(glyph, tone), span(SOURCE_LETTERS[row.verdict[:-1]], "dim")


def attention_lines(observation: ObservationBody, width: int) -> list[TextLine]:
    """The step's attention marks, each with its reason."""
    lines: list[TextLine] = []
    for name in observation.attention:
        reason = observation.reasons.get(name, "")
        text = f"{ATTENTION_GLYPH} {name.replace('_', ' ')}" + (f": {reason}" if reason else "")
        lines += text_block(text, width, "error" if name == "error" else "warning", _MARGIN_INDENT)
    return lines


def annotation_lines(annotations: StepAnnotations, width: int) -> list[TextLine]:
    """The process reward, verdicts, the one that counts first, then bookmarks and notes with their
    authors."""
    lines: list[TextLine] = []
    if (reward := annotations.reward) is not None:
        text = f"process reward {reward.score:.2f} by {reward.policy}"
        lines += text_block(text, width, "warning" if reward.weak else "dim", _MARGIN_INDENT)
    for number, verdict in enumerate(annotations.verdicts):
        lines += _verdict_lines(verdict, number == 0, width)
    note_keys = {(note.author, note.seq) for note in annotations.notes}
    for mark in (
        bookmark
        for bookmark in annotations.bookmarks
        if (bookmark.author, bookmark.seq) not in note_keys
    ):
        text = f"{BOOKMARK_GLYPH} {mark.author}, {local_time(mark.at)}"
        lines.append(line(_MARGIN_INDENT, span(text, "key")))
    for note in annotations.notes:
        title = line(
            _MARGIN_INDENT, span(f"{NOTE_GLYPH} {note.author}, {local_time(note.at)}", "key")
        )
        lines += [title, *text_block(note.text, width, "text", span("   │ ", "key"))]
    return lines


def _verdict_lines(verdict: SourceVerdict, counts: bool, width: int) -> list[TextLine]:
    glyph, tone = VERDICT_GLYPHS[verdict.verdict]
    judge_text = f"{verdict.by} (person)" if verdict.source == "human" else verdict.source
    if verdict.source != "human" and verdict.by not in ("", verdict.source, "rules"):
        judge_text += f" {verdict.by}"
    reason_text = f": {verdict.reason}" if verdict.reason else ", no reason given"
    rest = "" if counts else "  (outranked)"
    return text_block(f"{glyph} {verdict.verdict} by {judge_text}{reason_text}{rest}", width,
                  tone if counts else "faint",
                 _MARGIN_INDENT)  # fmt: skip


class StepMark(NamedTuple):
    """A bookmark or a note."""

    step: int
    at: int
    author: str
    text: str
    """A note's; empty for a bookmark alone."""


def list_marks(bookmarks: Sequence[BookmarkRow], notes: Sequence[NoteRow]) -> list[StepMark]:
    """Everything that people left, by step and time; a bookmark with its note is one line."""
    note_keys = {(note.step, note.author) for note in notes}
    marks = [StepMark(note.step, note.at, note.author, note.text) for note in notes]
    marks += [
        StepMark(bookmark.step, bookmark.at, bookmark.author, "")
        for bookmark in bookmarks
        if (bookmark.step, bookmark.author) not in note_keys
    ]
    return sorted(marks)


def mark_line(mark: StepMark, width: int) -> TextLine:
    """Step, author, the note's words; the time on the right."""
    glyph = NOTE_GLYPH if mark.text else BOOKMARK_GLYPH
    label = line(
        span(f" {mark.step:>6} ", "number"),
        span(f"{glyph} ", "key"),
        span(f"{fit_text(mark.author, 10)} ", "tool"),
        span(" ".join(mark.text.split())),
    )
    when = local_time(mark.at)[5:16]  # month, day, hour, minute
    return justify_line(label, line(span(f"  {when} ", "faint")), width)


ERROR_GLYPH, GUIDANCE_GLYPH, SCORE_GLYPH, FORK_GLYPH, FLAG_GLYPH = "✗", "✎", "★", "↳", "!"
PURIFIED_GLYPH = "↻"
FOLDED_GLYPH, UNFOLDED_GLYPH, RUNNING_GLYPH, RUN_GLYPH = "▸", "▾", "◌", "≡"
"""Before a step that is folded, unfolded or open, and before several on one line."""
RESULT_CELLS = 12
"""Cells that a result has in the narrowest line."""
CHOSEN_BAR = "▌ "
_TEXT_INDENT = TextSpan(SafeText("   "))
_DIFF_INDENT = TextSpan(SafeText("  "))


THOUGHT_CELLS = 12
"""Cells from which on a part of the thought is shown."""
THOUGHT_COLUMN = 48
"""Cell at which thoughts begin where the line is wide and what was done is short."""
DURATION_WIDTH, NAME_WIDTH, TIME_WIDTH, SECONDS_WIDTH = 48, 60, 72, 104
"""Widths from which on a line says how long a step took, that its action is `run_command` (below:
`$`), when it began, and that to the second."""
ACTION_CELLS = 28
"""Cells of an action's name: longer ones would leave no room for what it was on."""
SHELL_ACTIONS = ("run_command",)
RISES_GLYPH, FALLS_GLYPH, SAME_GLYPH = "▲", "▼", "="


def folded_line(
    row: FoldedStepRow, width: int, unfolded: bool = False, match_text: str = ""
) -> TextLine:
    """One line: number, time, marks, action, its command or file, thought; result, changed lines,
    score and duration on the right.

    As the width narrows these go, in this order: the thought, the time's seconds, the time, the
    name of a shell command's action, the duration; then the command is cut. Number, marks, result,
    lines and score stay. match_text: words in which a search found something, in place of what the
    action was on and of the thought.
    """
    marker = RUNNING_GLYPH if row.is_open else UNFOLDED_GLYPH if unfolded else FOLDED_GLYPH
    left = line(
        span(f"{marker} ", "title" if unfolded else "faint"),
        span(f"{row.step:>5} {_clock(row.started_at, width)}", "number"),
        *_flag_columns(row),
    )
    right = _right_columns(row, width)
    if match_text:
        words = span(" ".join(safe(match_text).split()))
        return justify_line((*left, _action_spans(row, width)[0], span("  "), words), right, width)
    left = (*left, *_action_spans(row, width))
    return _with_thought(left, row.thought, right, width, unfolded)


def fold_line(row: FoldedStepRow, last: int, marks: FoldMarks | None, width: int) -> TextLine:
    """A run of equal failures from `row` to step `last` on one line, which says how many they are
    and how long they took together.

    marks: None while they are being read; a verdict that not all have is counted in words.
    """
    count = last - row.step + 1
    verdict, words = _fold_verdict(marks, count)
    same = row._replace(
        has_bookmark=int(bool(marks and marks.bookmarks)),
        has_note=bool(marks and marks.notes),
        verdict=verdict,
        reward=None,
    )
    room = len(f"{row.step:>5} {_clock(row.started_at, width)}")
    left = line(
        span(f"{RUN_GLYPH} ", "title"),
        span(f"{step_outcomes.format_fold(row.step, last):<{room - 1}} ", "number"),
        *_flag_columns(same),
        *_action_spans(row, width),
    )
    took = step_outcomes.shown_duration(marks.seconds) if marks else ""
    counted = line(
        span(f"  ×{count:,}", "error"),
        span(f"  {took}" if took and width >= DURATION_WIDTH else "", "dim"),
    )
    right = (*words, *_result_span(row, width), *counted, span(" "))
    return _with_thought(left, row.thought, right, width, False)


def _fold_verdict(marks: FoldMarks | None, count: int) -> tuple[str, TextLine]:
    """The verdict that all steps of a run have, else how many have which."""
    if marks is None or not marks.verdicts:
        return "", ()
    verdicts = dict(marks.verdicts)
    if len(verdicts) == 1 and sum(verdicts.values()) == count:
        return next(iter(verdicts)), ()
    spans: list[TextSpan] = []
    for keep, name in ((False, "mask"), (True, "keep")):
        judged = sum(n for verdict, n in verdicts.items() if verdict.endswith("1") == keep)
        if judged:
            glyph, tone = VERDICT_GLYPHS[name]
            spans.append(span(f"  {glyph} {judged:,} of {count:,}", tone))
    return "", tuple(spans)


def _with_thought(
    left: TextLine, thought: str, right: TextLine, width: int, unfolded: bool
) -> TextLine:
    """A line with as much of the thought as there is room for behind what was done."""
    words = " ".join(safe(thought).split())
    used = line_width(left)
    column = min(width * 2 // 5, THOUGHT_COLUMN) if width >= NAME_WIDTH else 0
    if used < column:  # thoughts stand below each other
        left = (*left, span(" " * (column - used)))
        used = column
    if words and width - line_width(right) - used - 2 >= THOUGHT_CELLS:
        left = (*left, span("  "), span(words, "strong" if unfolded else "dim"))
    return justify_line(left, right, width)


def _clock(at_us: int, width: int) -> str:
    """When a step began, as far as there is room; with a space behind it."""
    if width < TIME_WIDTH or not at_us:
        return ""
    return local_time(at_us)[11 : 19 if width >= SECONDS_WIDTH else 16] + " "


def _action_spans(row: FoldedStepRow, width: int) -> list[TextSpan]:
    """The action, and what it was on: of several calls the first that failed, else the first."""
    main = step_outcomes.main_outcome(row.outcomes)
    tone: Tone = "error" if row.errors else "tool"
    if main is None:
        waits = row.is_open and not row.malformed
        words = row.tools.replace(",", ", ") or ("…" if waits else "no action")
        return [span(words, tone), span(f" {row.malformed}" if row.malformed else "", "dim")]
    shell = main.action in SHELL_ACTIONS and width < NAME_WIDTH
    name = main.action if cell_len(main.action) <= ACTION_CELLS else fit_text(
        main.action, ACTION_CELLS
    )  # fmt: skip
    more = f" +{len(row.outcomes) - 1}" if len(row.outcomes) > 1 else ""
    return [span("$" if shell else name, tone), span(f" {main.target}"), span(more, "dim")]


def _result_span(row: FoldedStepRow, width: int) -> list[TextSpan]:
    """What came of it, in a third of the line at most."""
    main = step_outcomes.main_outcome(row.outcomes)
    words = main.result if main else ""
    if not words:
        return []
    room = max(RESULT_CELLS, width // 3)
    text = fit_text(words, room) if cell_len(words) > room else words
    return [span(f"  {text}", "error" if main and main.failed else "dim")]


def with_chosen_bar(parts: TextLine) -> TextLine:
    """A folded line of a step that a verdict would be on: a bar before it."""
    return (span(CHOSEN_BAR, "title"), *parts[1:])


def _worst_mark(row: FoldedStepRow) -> TextSpan:
    """Whether a call failed, an attention mark stands, or the step was purified."""
    signals = [signal for signal in row.attention.split(",") if signal and signal != "error"]
    if row.errors:
        return span(ERROR_GLYPH, "error")
    if signals:
        return span(FLAG_GLYPH, "warning")
    return span(PURIFIED_GLYPH if row.attempt > 1 and not row.is_open else " ", "success")


def _flag_columns(row: FoldedStepRow) -> list[TextSpan]:
    """A column for each flag, so that the eye runs down it."""
    return [
        _worst_mark(row),
        span(GUIDANCE_GLYPH if row.guidance_count else " ", "guidance"),
        span(SCORE_GLYPH if row.score is not None else " ", "score"),
        span(FORK_GLYPH if row.begins_context else " ", "fork"),
        margin_mark(row),
        *verdict_mark(row),
        span(" "),
    ]


def _right_columns(row: FoldedStepRow, width: int) -> TextLine:
    parts = _result_span(row, width)
    if row.files > 1:
        parts.append(span(f"  {row.files} files", "dim"))
    if row.files:
        change = [span(f"+{row.added}", "added")] if row.added else []
        change += [span(f"−{row.removed}", "removed")] if row.removed else []
        for at, part in enumerate(change or [span("±", "dim")]):
            parts += [span(" " if at else "  "), part]
    if row.score is not None:
        parts += [span(f"  {format_score(row.score)}", "score"), _direction(row)]
    if width >= DURATION_WIDTH and (duration := step_outcomes.shown_duration(row.seconds)):
        parts.append(span(f"  {duration}", "dim"))
    if row.reward is not None:
        parts.append(span(f"  {row.reward:.2f}", "warning" if row.is_weak else "dim"))
    return (*parts, span(" "))


def _direction(row: FoldedStepRow) -> TextSpan:
    """Whether a score is above the one before it, below, or the same; nothing at the first."""
    before, score = row.score_before, row.score
    if before is None or score is None:
        return span("")
    if score == before:
        return span(f" {SAME_GLYPH}", "dim")
    return (
        span(f" {RISES_GLYPH}", "success") if score > before else span(f" {FALLS_GLYPH}", "error")
    )


def loading_line(step: int, width: int) -> TextLine:
    """The line of a step that is being read."""
    return justify_line(line(span(f"  {step:>5} ", "faint"), span("·", "faint")), (), width)


def head_line(instructions: str, width: int, unfolded: bool = False) -> TextLine:
    """Row 0: what the task asks."""
    heading = line(
        span(f"{UNFOLDED_GLYPH if unfolded else FOLDED_GLYPH} ", "title" if unfolded else "faint"),
        span(" task      ", "key"),
        span(" ".join(safe(instructions).split()), "strong"),
    )
    return justify_line(heading, (), width)


def head_lines(instructions: str, system: str, width: int) -> list[TextLine]:
    """Row 0 unfolded: the instructions, then the system prompt."""
    lines = [head_line(instructions, width, True)]
    lines += _barred_block("task", "key", instructions, "text", width)
    if system:
        lines += _barred_block("system prompt", "dim", system, "dim", width)
    return [*lines, ()]


def unfolded_lines(
    row: FoldedStepRow, record: StepRecord, width: int, notes: StepAnnotations = NO_ANNOTATIONS
) -> list[TextLine]:
    """Everything of a step: its folded line, thought, calls with results, guidance, files, and
    what people and judges said of it."""
    lines = [folded_line(row, width, True)]
    sample = record.sample
    if sample.thought.strip():
        lines += _barred_block("", "text", sample.thought.strip(), "text", width, bar="title")
    if sample.malformed:
        lines += _barred_block("not an action", "error", sample.malformed, "error", width)
    results = {result.call.id: result for result in record.results}
    for call in sample.calls:
        lines += _call_lines(call, width)
        if call.id in results:
            lines += _result_lines(results[call.id], width)
        else:
            lines.append(line(_TEXT_INDENT, span("  ⋯ no result yet", "dim")))
    if record.observation is not None and record.observation.tail.strip():
        lines += _barred_block(
            "", "faint", record.observation.tail.strip(), "dim", width, bar="faint"
        )
    for message in record.guidance:
        lines += guidance_lines(message, width)
    if record.observation is not None:
        lines += _file_lines(record.observation.files, record.observation.more_files, width)
        lines += attention_lines(record.observation, width)
    lines += attempt_lines(record, width)
    if verification := step_json.verification_line(record):
        lines += text_block(verification, width, "key", _TEXT_INDENT)
    lines += annotation_lines(notes, width)
    for mark in record.aside:
        lines += text_block(
            f"{FLAG_GLYPH} {step_queries.describe_quarantine(mark)}", width, "warning", _TEXT_INDENT
        )
    return [*lines, *_sampling_line(record, width), ()]


def attempt_lines(record: StepRecord, width: int) -> list[TextLine]:
    """How a step was purified, then what was first sampled and each correction, as they were."""
    lines: list[TextLine] = []
    if text := step_json.purification_line(record):
        tone: Any = "success" if step_json.purification_of(record) else "dim"
        lines += text_block(f"{PURIFIED_GLYPH} {text}", width, tone, _TEXT_INDENT)
    for attempt in record.others:
        lines.append(line(_TEXT_INDENT, span(step_json.attempt_name(attempt), "key")))
        for text in filter(None, (attempt.sample.thought.strip(), attempt.sample.malformed)):
            lines += text_block(text, width, "dim", span("   ┆ ", "faint"))
        for call in attempt.sample.calls:
            lines += _call_lines(call, width)
        for result in attempt.results:
            lines += _result_lines(result, width)
    return lines


def _barred_block(
    title: str, title_tone: Any, text: str, tone: Any, width: int, bar: Any = "faint"
) -> list[TextLine]:
    edge = span("   │ ", bar)
    head = [line(_TEXT_INDENT, span(title, title_tone))] if title else []
    return head + text_block(text, width, tone, edge)


def _call_lines(call: ToolCall, width: int) -> list[TextLine]:
    lines = [line(_TEXT_INDENT, span("→ ", "tool"), span(call.name, "tool"))]
    if call.error:
        lines += text_block(call.error, width, "error", span("     ", "error"))
    for key, value in call.arguments.items():
        lines += _argument_lines(key, value, width)
    return lines


def _argument_lines(key: str, value: object, width: int) -> list[TextLine]:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    label = span(f"     {key} ", "key")
    room = width - line_width((label,))
    if "\n" not in text and len(text) <= room:
        return [line(label, span(text))]
    return [line(label), *text_block(text, width, "text", span("       ", "faint"))]


def _result_lines(result: ToolResult, width: int) -> list[TextLine]:
    tone: Any = "success" if result.success else "error"
    mark = "←" if result.success else f"← {ERROR_GLYPH}"
    facts = [span(f" {result.seconds:.1f} s", "faint")]
    if result.forged_tags:
        facts.append(span(f"  {FLAG_GLYPH} {result.forged_tags} forged tag disarmed", "warning"))
    title = line(_TEXT_INDENT, span(f"{mark} {result.kind}", tone), *facts)
    return [title, *text_block(result.text, width, "dim", span("   │ ", tone))]


def guidance_lines(message: DeliveredGuidance, width: int) -> list[TextLine]:
    """A person's words, as no other text is shown: a heavy bar and their name."""
    bar = span("   ┃ ", "guidance")
    title = line(bar, span(f"{GUIDANCE_GLYPH} {message.author}", "guidance"))
    return [title, *text_block(message.text, width, "guidance_text", bar)]


def _file_lines(files: tuple[FileChange, ...], more: int, width: int) -> list[TextLine]:
    lines: list[TextLine] = []
    for change in files:
        counts = line(span(f"  +{change.added}", "added"), span(f" −{change.removed} ", "removed"))
        note = span(f" {change.note}", "dim") if change.note else span("")
        heading = line(_TEXT_INDENT, span("± ", "dim"), span(change.path, "key"), note)
        lines.append(justify_line(heading, counts, width))
        rows = diff_rendering.parse_diff(change.path, change.diff)
        lines += [
            (_DIFF_INDENT, *parts)
            for parts in diff_rendering.unified_diff_with_backgrounds(
                rows, width - line_width((_DIFF_INDENT,))
            )
        ]
    if more:
        lines.append(line(_TEXT_INDENT, span(f"± and {pluralize(more, 'more file')}", "dim")))
    return lines


def _sampling_line(record: StepRecord, width: int) -> list[TextLine]:
    """The last line of a step: how it was sampled."""
    sample = record.sample
    drift = drift_words(sample.drift)
    parts = [sample.policy or sample.engine, drift, sample.finish_reason]
    if sample.prompt_tokens is not None:
        cached = f" ({sample.cached_tokens:,} cached)" if sample.cached_tokens is not None else ""
        parts.append(f"{sample.prompt_tokens:,} prompt tokens{cached}")
    if sample.cost is not None:
        parts.append(f"cost {format_cost(sample.cost)}")
    when = datetime.fromisoformat(record.at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    parts += [f"{sample.seconds:.1f} s", when]
    text = " · ".join(part for part in parts if part)
    return [line(_TEXT_INDENT, TextSpan(part, "faint")) for part in wrap_text(text, width - 3)]
