"""One step as an element: what the model thought and called, what came back, what changed, and what
people and reviews said of it.

A step is folded to one line; what people said to the agent stands outside of that, always seen.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from houston_console.commands.rollout_page.page_elements import (
    Content,
    cut_text,
    element,
    extend,
)
from houston_console.commands.rollout_page.terminal_colors import colored_text
from houston_console.commands.rollout_summary import (
    cut_text as cut_line,
)
from houston_console.commands.rollout_summary import (
    drift_words,
    format_local_time,
    format_score,
)
from houston_shared.records import (
    DeliveredGuidance,
    FileChange,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.secret_redaction import redact
from houston_shared.store import step_json, step_queries
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.store.process_reward_queries import ProcessRewardRow
from houston_shared.times_and_counts import format_clock, pluralize

_LINE_CHARACTERS = 160
"""Of a folded step's line; the page cuts it to its width."""
_DIFF_KINDS = {"+": "added", "-": "removed", "@": "place"}


class StepView(NamedTuple):
    """A step with all that stands beside it."""

    record: StepRecord
    verdicts: Sequence[SourceVerdict] = ()
    """The first of them counts."""
    reward: ProcessRewardRow | None = None
    score: float | None = None
    """Of the submission that this step made."""
    bookmarks: Sequence[tuple[str, str]] = ()
    """Author and note."""


def step_marks(view: StepView) -> list[str]:
    """What is out of the ordinary about a step: classes of its element, and of its place above."""
    closed = view.record.observation
    errors = any(not result.success for result in view.record.results)
    marks = {
        "guided": bool(view.record.guidance),
        "masked": bool(view.verdicts) and view.verdicts[0].verdict == "mask",
        "kept": bool(view.verdicts) and view.verdicts[0].verdict == "keep",
        "scored": view.score is not None,
        "failed": errors or bool(view.record.sample.malformed),
        "attention": bool(closed and closed.attention),
        "marked": bool(view.bookmarks),
    }
    return [name for name, is_set in marks.items() if is_set]


def step_element(view: StepView) -> Element:
    """The whole step."""
    record = view.record
    folded = element("details", _summary(view), element("div", *_body(view), kind="body"))
    guidance = [_guidance(message) for message in record.guidance]
    classes = " ".join(["step", *step_marks(view)])
    return element("article", folded, *guidance, kind=classes, id=f"step-{record.step}")


def _summary(view: StepView) -> Element:
    record = view.record
    number = element("a", str(record.step), kind="number", href=f"#step-{record.step}")
    active = format_clock(record.active_seconds)
    when = element("time", active, title=format_local_time(record.at))
    line = element("span", *_first_line(record), kind="line")
    badges = element("span", *_badges(view), kind="badges")
    return element("summary", number, line, badges, when)


def _first_line(record: StepRecord) -> Iterator[Content]:
    """Its first call, or what there is in place of one."""
    calls = record.sample.calls
    if not calls:
        yield element("span", record.sample.malformed or "no action", kind="none")
        yield f" {cut_line(redact(record.sample.thought), _LINE_CHARACTERS)}"
        return
    yield element("b", calls[0].name)
    for value in calls[0].arguments.values():
        words = redact(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        yield f" {cut_line(words[: 2 * _LINE_CHARACTERS], _LINE_CHARACTERS)}"
    if len(calls) > 1:
        yield element("span", f" and {pluralize(len(calls) - 1, 'more call')}", kind="none")


def _badges(view: StepView) -> Iterator[Element]:
    closed = view.record.observation
    if view.score is not None:
        yield element("span", f"score {format_score(view.score)}", kind="badge score")
    if any(not result.success for result in view.record.results):
        yield element("span", "error", kind="badge bad")
    for name in closed.attention if closed else ():
        if name != "error":
            reason = closed.reasons.get(name, "") if closed else ""
            yield element("span", name.replace("_", " "), kind="badge warn", title=reason)
    if view.verdicts:
        first = view.verdicts[0]
        kind = "bad" if first.verdict == "mask" else "good"
        badge = f"{first.verdict} · {first.source}"
        yield element("span", badge, kind=f"badge {kind}", title=first.reason)
    if view.reward:
        kind = "warn" if view.reward.weak else ""
        badge = f"reward {view.reward.score:.2f}"
        yield element("span", badge, kind=f"badge {kind}".strip(), title=view.reward.policy)
    if step_json.purification_of(view.record):
        yield element("span", "purified", kind="badge")
    if view.bookmarks:
        yield element("span", "★", kind="badge star")


def _body(view: StepView) -> Iterator[Content]:
    record, closed = view.record, view.record.observation
    yield _text_block(record.sample.thought, "thought")
    if record.sample.malformed:
        yield element("p", f"No action: {record.sample.malformed}", kind="note bad")
    results = {result.call.id: result for result in record.results}
    for call in record.sample.calls:
        yield _call(call)
        if call_result := results.pop(call.id, None):
            yield _result(call_result)
    for other in results.values():  # of a call that the sample does not have
        yield _result(other)
    if closed:
        yield _text_block(closed.tail, "tail")
        if closed.files:
            yield _files(closed.files, closed.more_files)
    yield from _remarks(view)
    yield from (_attempt(attempt) for attempt in record.others)


def _call(call: ToolCall) -> Element:
    node = element("div", element("b", call.name), kind="call")
    for name, value in call.arguments.items():
        node.append(_argument(name, value))
    if call.error:
        node.append(element("p", call.error, kind="note bad"))
    return node


def _argument(name: str, value: Any) -> Element:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    label = element("span", name, kind="name")
    if "\n" in text.strip() or len(text) > _LINE_CHARACTERS:
        return element("div", label, _text_block(text, "value"), kind="argument")
    return element("div", label, element("code", text), kind="argument")


def _result(result: ToolResult) -> Element:
    kind = "observation" if result.success else "observation failed"
    block = _text_block(result.text, kind)
    return element("pre", "(nothing)", kind=f"{kind} empty") if block is None else block


def _text_block(text: str, kind: str) -> Element | None:
    """Text as it was written, with its colours; of a very long one the beginning and the end."""
    if not text.strip():
        return None
    begin, left_out, end = cut_text(redact(text.strip("\n")))
    block = extend(element("pre", kind=kind), colored_text(begin))
    if left_out:
        block.append(element("span", f"\n… {left_out} …\n", kind="cut"))
        extend(block, colored_text(end))
    return block


def _files(files: Sequence[FileChange], more: int) -> Element:
    node = element("div", kind="files")
    for change in files:
        counts = element(
            "span",
            element("span", f"+{change.added}", kind="plus"),
            " ",
            element("span", f"−{change.removed}", kind="minus"),
            kind="counts",
        )
        figures = counts if change.added or change.removed else None
        head = (element("span", change.kind, kind="change"), element("code", change.path), figures)
        if not change.diff:
            note = element("span", change.note or "no text to compare", kind="none")
            node.append(element("p", *head, note, kind="file"))
            continue
        node.append(element("details", element("summary", *head), _diff(change.diff), kind="file"))
    if more:
        node.append(element("p", f"and {pluralize(more, 'more file')}", kind="note"))
    return node


def _diff(diff: str) -> Element:
    begin, left_out, _ = cut_text(redact(diff))
    block = element("pre", kind="diff")
    for line in begin.splitlines():
        kind = "" if line.startswith(("+++", "---")) else _DIFF_KINDS.get(line[:1], "")
        block.append(element("span", line + "\n", kind=kind))
    if left_out:
        block.append(element("span", f"… {left_out}\n", kind="cut"))
    return block


def _remarks(view: StepView) -> Iterator[Element]:
    """What was said of the step, and by whom."""
    record, closed = view.record, view.record.observation
    for verdict in view.verdicts:
        reason = f": {verdict.reason}" if verdict.reason else ""
        remark = f"{verdict.verdict} by {verdict.by} ({verdict.source}){reason}"
        yield element("p", remark, kind=f"remark {verdict.verdict}")
    for name, reason in closed.reasons.items() if closed else ():
        yield element("p", f"{name.replace('_', ' ')}: {reason}", kind="remark warn")
    for author, note in view.bookmarks:
        yield element("p", f"★ {author}{f': {note}' if note else ''}", kind="remark")
    for line in (step_json.verification_line(record), step_json.purification_line(record)):
        if line:
            yield element("p", line, kind="remark")
    for mark in record.aside:
        yield element("p", step_queries.describe_quarantine(mark), kind="remark warn")
    drift = drift_words(record.sample.drift)
    facts = [record.sample.engine, record.sample.policy, drift]
    counts = step_json.usage_json(record.sample)
    facts += [
        f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count is not None
    ]
    facts += [f"shared with {record.inherited}"] if record.inherited else []
    yield element("p", " · ".join(filter(None, facts)), kind="facts")


def _attempt(attempt: StepRecord) -> Element:
    """An attempt that does not count, folded."""
    node = element("details", element("summary", step_json.attempt_name(attempt)), kind="attempt")
    parts = [_text_block(attempt.sample.thought, "thought")]
    parts += [_call(call) for call in attempt.sample.calls]
    parts += [_result(result) for result in attempt.results]
    return extend(node, parts)


def _guidance(message: DeliveredGuidance) -> Element:
    head = element("span", message.author, kind="author")
    words = element("p", message.text, kind="words")
    return element("aside", element("p", head, " said"), words, kind="guidance")
