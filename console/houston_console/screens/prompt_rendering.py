"""A model request as lines: messages, rendered prompt, token ids, and what changed.

Reads one request and the one before it, compares them, and marks how far the engine's cache
reached. All but the read is pure and runs in a thread. The screen that shows it is
`screens.prompt_inspector`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from houston_console.widgets.styled_text import (
    TextLine,
    TextSpan,
    Tone,
    fit_text,
    flow_groups,
    line,
    span,
    text_block,
    wrap_text,
)
from houston_shared import guidance_tag
from houston_shared.records import Message, ToolCall
from houston_shared.safe_text import SafeText
from houston_shared.store import step_context, step_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.step_context import (
    WITHOUT_IDS_NOTE,
    ContextChange,
    ContextSurroundings,
    ContextView,
    NumberedMessage,
    SampledRequest,
    SummarisedSteps,
    TextOmission,
)
from houston_shared.times_and_counts import format_cost, join_first


class CachedPrefix(NamedTuple):
    """Where what the engine had already ends."""

    tokens: int
    total_tokens: int
    """Tokens of the whole prompt."""
    characters: int | None
    """Of the rendered text; None where that cannot be told."""


class MessageOffset(NamedTuple):
    """A place in the messages."""

    number: int
    """Of the message, from 0; one behind the last for the end."""
    offset: int
    """Characters of its content before the place; 0 for before the message."""


def locate_in_messages(
    rendered: str, messages: Sequence[Message], characters: int
) -> MessageOffset:
    """Where so many characters of the rendered text end in the messages that it was made from."""
    at = 0
    for index, message in enumerate(messages):
        begins = rendered.find(message.content, at) if message.content else -1
        if begins < 0:
            continue
        if characters <= begins:
            return MessageOffset(index, 0)
        if characters < begins + len(message.content):
            return MessageOffset(index, characters - begins)
        at = begins + len(message.content)
    return MessageOffset(len(messages), 0)


def cache_rule(reach: CachedPrefix, width: int) -> TextLine:
    """The line between what was there and what was not."""
    words = f" ↑ from the engine's cache: {reach.tokens:,} of {reach.total_tokens:,} tokens "
    return line(span(f"──{words}".ljust(width, "─")[:width], "hunk"))


def line_start(text: str, characters: int) -> int:
    """The start of the line that a place is in: rules stand between lines."""
    return text.rfind("\n", 0, characters) + 1


class RawRequest(NamedTuple):
    """What the journal holds."""

    request: SampledRequest
    around: ContextSurroundings
    newest: int
    """The newest step there is."""


class InspectedRequest(NamedTuple):
    """One request and how it stands to the one before."""

    step: int
    newest: int
    view: ContextView
    diff: ContextChange | None
    """None for the first step."""
    summarised: list[SummarisedSteps]
    omissions: list[TextOmission]
    cached_prefix: CachedPrefix | None
    """None where the engine says nothing of its cache, or had nothing in it."""

    @property
    def new(self) -> frozenset[int]:
        """Numbers of the messages that the request before did not have."""
        return frozenset(entry.number for entry in self.diff.new) if self.diff else frozenset()


def read_request(rollout: str, step: int) -> ReadPlan[RawRequest]:
    """Read a request and what surrounds it."""
    request = yield from step_context.read_request(rollout, step)
    around = yield from step_context.read_context_surroundings(rollout, step)
    return RawRequest(request, around, (yield from step_queries.find_last_step(rollout)))


def inspect_request(raw: RawRequest) -> InspectedRequest:
    """Decode and compare; takes a moment where a context has 100,000 tokens."""
    request, around = raw.request, raw.around
    view = step_context.decode_context(request)
    change = None
    if around.before is not None:
        change = step_context.compare_contexts(around.before, view.messages)
    cuts = step_context.find_omissions(view.messages)
    reach = _cached_prefix(request, view)
    return InspectedRequest(request.step, raw.newest, view, change, around.summarised, cuts, reach)


def _cached_prefix(request: SampledRequest, view: ContextView) -> CachedPrefix | None:
    sample = view.sample
    if not sample.cached_tokens:
        return None
    of = sample.prompt_tokens or len(view.token_ids or ())
    characters = None if view.note else step_context.count_cached_characters(request, view.rendered)
    return CachedPrefix(sample.cached_tokens, of, characters)


NO_TOKEN_IDS_TEXT = "this engine gives no token ids"
_MAX_NAMED_CUTS = 4
"""Cuts that are named one by one."""


def request_facts(request: InspectedRequest, width: int) -> list[TextLine]:
    """All that is known of a request but its text; wrapped."""
    lines = flow_groups(_origin_lines(request.view, request.step), width) + flow_groups(
        _token_count_lines(request), width
    )
    lines += flow_groups(_change_lines(request), width)
    for words in _omitted_lines(request):
        lines += text_block(words, width, "fork", span(" "))
    note = (
        f"{NO_TOKEN_IDS_TEXT}; its text is made from the messages"
        if lacks_token_ids(request.view)
        else request.view.note
    )
    return lines + (text_block(note, width, "warning", span(" ")) if note else [])


def lacks_token_ids(view: ContextView) -> bool:
    """Whether there are no ids because the engine gives none, not because they were erased."""
    return view.note == WITHOUT_IDS_NOTE


_PREFIX_WORDS: dict[str, str] = {
    "clean": "prefix kept",
    "stripped": "thoughts stripped",
    "realigned": "prefix rendered anew",
    "forked": "new context",
}
"""What became of the prompt before it, by the drift of a step."""


def _origin_lines(view: ContextView, step: int) -> list[TextLine]:
    parent = view.parent
    origin = f"extends step {parent.step} ({parent.role})" if parent else "extends nothing"
    tone: Tone = "success" if view.drift == "clean" else "warning"
    keeps = f", keeps {view.sample.kept:,} of its ids" if parent and view.token_ids else ""
    return [
        line(span(f" step {step} ", "number")),
        line(span(f" {_PREFIX_WORDS[view.drift]} ", tone)),
        line(span(f" {origin}{keeps} ", "dim")),
    ]


def _token_count_lines(request: InspectedRequest) -> list[TextLine]:
    view, sample = request.view, request.view.sample
    counts: list[tuple[str, str]] = []
    if sample.prompt_tokens is not None:
        counts.append(("prompt", f"{sample.prompt_tokens:,} tokens"))
    if sample.cached_tokens is not None:
        part = sample.cached_tokens / sample.prompt_tokens if sample.prompt_tokens else 0
        counts.append(("cached", f"{sample.cached_tokens:,}{f' ({part:.0%})' if part else ''}"))
    if view.token_ids is not None:
        counts.append(("ids", f"{len(view.token_ids):,}"))
    counts.append(("text", f"{len(view.rendered):,} characters"))
    roles = Counter(message.role for message in view.messages)
    named = ", ".join(f"{count} {role}" for role, count in roles.items())
    counts.append(("messages", f"{len(view.messages)} ({named})" if named else "0"))
    if view.tools:
        counts.append(("tools", str(len(view.tools))))
    if sample.sampled_ids is not None:
        counts.append(("sampled", f"{sample.sampled_ids:,}"))
    if sample.cost is not None:
        counts.append(("cost", format_cost(sample.cost)))
    counts += [("ended", sample.finish_reason), ("policy", sample.policy)]
    return [line(span(f" {name} ", "key"), span(f"{value} ")) for name, value in counts if value]


def _change_lines(request: InspectedRequest) -> list[TextLine]:
    change = request.diff
    if change is None:
        return [line(span(" the first request of this rollout ", "dim"))]
    new, removed = [entry.message for entry in change.new], [entry.message for entry in change.gone]
    since = span(f" since step {request.step - 1} ", "key")
    lines = [line(since, span(f"{_size_text('+', new)} ", "added"))]
    if removed:
        lines.append(line(span(f" {_size_text('−', removed)} ", "removed")))
    lines.append(line(span(f" {change.kept} as before ", "dim")))
    return lines


def _size_text(sign: str, messages: Iterable[Message]) -> str:
    sizes = [len(message.content) for message in messages]
    named = "message" if len(sizes) == 1 else "messages"
    return f"{sign}{len(sizes)} {named} ({sum(sizes):,} characters)"


def _omitted_lines(request: InspectedRequest) -> list[str]:
    """What the model no longer reads word for word, or never did."""
    notes = [
        f"↳ steps {summary.first} to {summary.last} are a summary since step {summary.before}"
        + (", made without the model" if summary.mechanical else "")
        + (f", written by {summary.by}" if summary.by else "")
        for summary in request.summarised
    ]
    if request.view.drift == "stripped":
        notes.append("✂ thoughts of earlier answers are left out")
    if request.omissions:
        numbers = [str(omission.number) for omission in request.omissions]
        places = join_first(numbers, _MAX_NAMED_CUTS)
        total = len(request.omissions)
        count = "1 text says" if total == 1 else f"{total} texts say"
        notes.append(f"✂ {count} that something was left out: message {places}")
    return notes


TOKEN_IDS_PER_LINE = 12
_ROLE_TONES: dict[str, Tone] = {
    "system": "dim",
    "user": "key",
    "assistant": "title",
    "tool": "success",
}
GUIDANCE_ROLES = ("user", "tool")
"""Roles in which a live tag is the daemon's: a system prompt explains it, models may write it."""
MAX_REMOVED_LINES = 6
"""Lines shown of a message that is no longer there; the step before has it whole."""


def message_lines(request: InspectedRequest, width: int) -> tuple[list[TextLine], int]:
    """The messages, each under its role, and the line with the first that is new."""
    view, reach = request.view, request.cached_prefix
    drawn, first_new = _tool_lines(view, width), -1
    ends = None
    if reach is not None and reach.characters is not None:
        ends = locate_in_messages(view.rendered, view.messages, reach.characters)
    for index, message in enumerate(view.messages):
        if index + 1 in request.new and first_new < 0:
            first_new = len(drawn)
        new = index + 1 in request.new
        lines = _one_message_lines(index + 1, message, width, new)
        if reach is not None and ends is not None and ends.number == index:
            place = _line_at_offset(
                message, ends.offset, width, len(_message_head(index + 1, message, width, new))
            )
            lines.insert(place, cache_rule(reach, width))
        drawn += [*lines, ()]
    return drawn, first_new if first_new >= 0 else len(drawn)


def _tool_lines(view: ContextView, width: int) -> list[TextLine]:
    """Tools that were offered: what they are is part of the rendered text."""
    names = [tool.get("function", tool).get("name", "?") for tool in view.tools]
    if not names:
        return []
    head = line(span("     "), span("tools", "tool"), span(f"  {len(names)} offered", "faint"))
    return [head, *text_block(", ".join(map(str, names)), width, "dim", span("   │ ", "tool")), ()]


def _line_at_offset(message: Message, offset: int, width: int, head: int) -> int:
    """Which line of a message, whose head has so many, a place in its content is before."""
    if not offset:
        return 0
    before = line_start(message.content, offset)
    above = _content_lines(message, message.content[: before - 1], width) if before else []
    return head + len(above)


def _one_message_lines(number: int, message: Message, width: int, new: bool) -> list[TextLine]:
    lines = _message_head(number, message, width, new) + (
        _content_lines(message, message.content, width)
    )
    for call in message.calls:
        text = _call_text(call)
        lines += [
            line(span("   → ", "tool"), TextSpan(part, "tool"))
            for part in wrap_text(text, width - 5)
        ]
    return lines


def _call_text(call: ToolCall) -> str:
    """A call with its arguments as JSON, as models are given them."""
    return f"{call.name} {msgspec.json.encode(call.arguments).decode()}"


def _message_head(number: int, message: Message, width: int, new: bool) -> list[TextLine]:
    size = f"  {len(message.content):,} characters" if message.content else ""
    answers = f" to call {message.call_id}" if message.call_id else ""
    counted = (span(f"{number:>4} ", "number"), span(message.role, _ROLE_TONES[message.role]))
    head: list[TextLine] = [counted, (span(answers, "faint"),), (span(size, "faint"),)]
    return flow_groups([*head, (span("  + new", "added"),)] if new else head, width)


def _content_lines(message: Message, text: str, width: int) -> list[TextLine]:
    if not text:
        return []
    bar = TextSpan(SafeText("   │ "), _ROLE_TONES[message.role])
    if message.role in GUIDANCE_ROLES:
        return prose_lines(text, width, bar)
    return text_block(text, width, "text", bar)


def rendered_prompt_lines(request: InspectedRequest, width: int) -> tuple[list[TextLine], int]:
    """The prompt as text, and its line with the end of what was cached.

    Guidance is told apart only inside the messages that can hold it.
    """
    view, reach = request.view, request.cached_prefix
    lines: list[TextLine] = []
    ends = -1
    cut = reach.characters if reach and reach.characters is not None else len(view.rendered)
    at = 0
    for start, stop, is_guidance in _prompt_spans(view):
        text = view.rendered[start:stop]
        rows = prose_lines(text, width) if is_guidance else text_block(text, width)
        if reach and ends < 0 and start <= cut < stop:
            before = line_start(text, cut - start)
            part = text[: before - 1] if before else ""
            above = (
                (prose_lines(part, width) if is_guidance else text_block(part, width))
                if part
                else []
            )
            ends = len(lines) + len(above)
            rows.insert(len(above), cache_rule(reach, width))
        lines += rows
        at = stop
    lines += _tool_schema_lines(view, width)
    return lines, ends if ends >= 0 else len(lines) if at else 0


def _prompt_spans(view: ContextView) -> list[tuple[int, int, bool]]:
    """Start and end of what a person may have said, and of all between."""
    spans: list[tuple[int, int, bool]] = []
    at = 0
    for message in view.messages:
        place = view.rendered.find(message.content, at) if message.content else -1
        if place < 0 or message.role not in GUIDANCE_ROLES:
            at = max(at, place + len(message.content)) if place >= 0 else at
            continue
        start = spans[-1][1] if spans else 0
        if place > start:
            spans.append((start, place, False))
        at = place + len(message.content)
        spans.append((place, at, True))
    end = spans[-1][1] if spans else 0
    return [*spans, (end, len(view.rendered), False)] if end < len(view.rendered) else spans


def _tool_schema_lines(view: ContextView, width: int) -> list[TextLine]:
    """Tools that an engine without ids got beside the messages."""
    if view.token_ids is not None or not view.tools:
        return []
    text = "\n".join(msgspec.json.encode(tool).decode() for tool in view.tools)
    return [line(span("[tools]", "tool")), *text_block(text, width, "dim")]


def prose_lines(text: str, width: int, edge: TextSpan | None = None) -> list[TextLine]:
    """Text that the daemon made, with what stands inside its live guidance tags told apart."""
    lines: list[TextLine] = []
    bar = (edge,) if edge else ()
    rest, inside = text, False
    while rest:
        tag = guidance_tag.CLOSING_TAG if inside else guidance_tag.OPENING_TAG
        at = rest.find(tag)
        if at < 0:
            part, rest = rest, ""
        elif inside:
            part, rest = rest[: at + len(tag)], rest[at + len(tag) :].removeprefix("\n")
        else:
            part, rest = rest[:at].removesuffix("\n"), rest[at:]
        tone: Tone = "guidance_text" if inside else "text"
        if part:
            lines += [(*bar, TextSpan(row, tone)) for row in wrap_text(part, width - 5)]
        inside = not inside
    return lines


class TokenIdLines(Sequence[TextLine]):
    """The ids as lines, each made when it is shown; what the parent did not have in full colour."""

    def __init__(self, request: InspectedRequest, width: int) -> None:
        self._ids = request.view.token_ids or []
        self._kept_ids = request.view.sample.kept
        self._cached_prefix, self._width = request.cached_prefix, width
        self._per_line = max(4, min(TOKEN_IDS_PER_LINE, (width - 10) // 8))
        line_total = -(-len(self._ids) // self._per_line)
        self.rule = (
            min(line_total, self._cached_prefix.tokens // self._per_line)
            if self._cached_prefix
            else -1
        )
        """The line of the rule; −1 for none. It stands before the line with the first other id."""
        self._count = line_total + (self.rule >= 0)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number):  # type: ignore[no-untyped-def]
        if isinstance(number, slice):
            return [self[at] for at in range(*number.indices(self._count))]
        if not 0 <= number < self._count:
            raise IndexError(number)
        if number == self.rule and self._cached_prefix:
            return cache_rule(self._cached_prefix, self._width)
        start = (number - (0 <= self.rule < number)) * self._per_line
        chunk = self._ids[start : start + self._per_line]
        old = max(0, min(len(chunk), self._kept_ids - start))
        return line(
            TextSpan(fit_text(f"{start:>8}", 10), "number"),
            span("".join(f"{token:>7} " for token in chunk[:old]), "faint"),
            span("".join(f"{token:>7} " for token in chunk[old:]), "text"),
        )


def token_id_lines(request: InspectedRequest, width: int) -> tuple[Sequence[TextLine], int]:
    """The ids, and the line of the first that the parent did not have."""
    view = request.view
    if view.token_ids is None:
        return text_block(
            NO_TOKEN_IDS_TEXT if lacks_token_ids(view) else view.note, width, "warning", span(" ")
        ), 0
    lines = TokenIdLines(request, width)
    return lines, len(lines)


def difference_lines(request: InspectedRequest, width: int) -> tuple[list[TextLine], int]:
    """What the request has that the one before had not, and the other way round."""
    change = request.diff
    if change is None:
        return [line(span(" There is no request before the first.", "dim"))], 0
    lines = _section_heading(f"new: {len(change.new)}", f"{change.kept} messages as before")
    for entry in change.new:
        lines += [*_one_message_lines(entry.number, entry.message, width, True), ()]
    if change.gone:
        lines += _section_heading(
            f"no longer there: {len(change.gone)}", f"as of step {request.step - 1}"
        )
        lines += [row for entry in change.gone for row in _removed_message_lines(entry, width)]
    return lines, 0


def _section_heading(words: str, note: str) -> list[TextLine]:
    return [line(span(f" {words}", "strong"), span(f"  {note}", "dim")), ()]


def _removed_message_lines(numbered: NumberedMessage, width: int) -> list[TextLine]:
    """The beginning of a message, as something that was taken away."""
    message = numbered.message
    head = line(
        span(f"{numbered.number:>4} ", "number"),
        span(message.role, _ROLE_TONES[message.role]),
        span(f"  {len(message.content):,} characters", "faint"),
        span("  − gone", "removed"),
    )
    text = message.content or ", ".join(_call_text(call) for call in message.calls)
    rows = text_block(text[: MAX_REMOVED_LINES * width * 2], width, "dim", span("   − ", "removed"))
    if len(rows) > MAX_REMOVED_LINES:
        rows = [*rows[:MAX_REMOVED_LINES], line(span("     …", "faint"))]
    return [head, *rows, ()]
