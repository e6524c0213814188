"""Spans from events of the journal: a trace is a rollout with its steps, each with its samples and
calls.

Names and attributes are those of OpenTelemetry's semantic conventions for generative AI; names that
these lack begin with `houston.`. Times are the journal's. Ids follow from the rollout and the place
in it, so a span that is made again is the same span. Nothing is sent here.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from houston_shared.records import (
    ContextHead,
    ObservationBody,
    SampleBody,
    ToolCall,
    ToolResult,
)
from houston_shared.store import journal_events, rollout_queries
from houston_shared.store.event_bodies import BODY_TYPES
from houston_shared.store.journal_events import JournalEvent, ReadPlan, read_event_record
from houston_shared.store.rollout_queries import RolloutRow

AttributeValue = str | bool | int | float | Sequence[str]
STEP_KINDS = ("sample", "intent", "result", "observation")
"""Kinds of events that spans of a step are made of."""
MAX_ATTRIBUTE_CHARACTERS = 16_000
"""Of a text in a span; collectors refuse what is much longer."""
_NANOSECONDS = 1_000
"""In one microsecond, which the journal counts in."""


class SpanEvent(NamedTuple):
    """Something within a span."""

    name: str
    at: int
    """Nanoseconds since 1970."""
    attributes: Mapping[str, AttributeValue]


class RolloutSpan(NamedTuple):
    """A span before OpenTelemetry has made one of it."""

    name: str
    trace: int
    """128 bits."""
    id: int
    """64 bits."""
    parent: int
    """Id of the span it is in; 0 for a rollout, which is in none."""
    start: int
    """Nanoseconds since 1970."""
    end: int
    attributes: dict[str, AttributeValue]
    client: bool = False
    """Whether it is a request to somebody else: a sample."""
    error: str = ""
    """What went wrong, in a word; empty where it went well."""
    events: tuple[SpanEvent, ...] = ()


class StepKey(NamedTuple):
    """One attempt at a step."""

    rollout: str
    step: int
    attempt: int


def trace_id(rollout: RolloutRow) -> int:
    """Of a rollout: the same wherever its home is moved."""
    return _hash(f"{rollout.id} {rollout.created_at}", 16)


def span_id(rollout: RolloutRow, *place: object) -> int:
    """Of a place in a rollout; without one, of the rollout's own span."""
    return _hash(" ".join(map(str, (rollout.id, rollout.created_at, *place))), 8)


def read_rollout_span(rollout: str, content: bool) -> ReadPlan[RolloutSpan | None]:
    """The span of a rollout that has ended. content: also with its task and system prompt."""
    row = yield from rollout_queries.find_rollout(rollout)
    ended = yield from journal_events.select_events(
        "seq = (SELECT max(seq) FROM events WHERE rollout = ? AND kind = 'state')", (row.id,)
    )
    if not ended:
        return None
    attributes = _without_empty(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": row.task,
            "gen_ai.conversation.id": row.id,
            "gen_ai.provider.name": row.engine,
            "gen_ai.request.model": row.policy or row.engine,
            "houston.state": row.state,
            "houston.reason": row.reason,
            "houston.steps": row.steps,
            "houston.steps.errors": row.errors,
            "houston.active_seconds": row.active_us / 1e6,
            "houston.score.best": row.best_score,
            "houston.score.last": row.last_score,
            "houston.parent": row.parent,
            "houston.group": row.group_id,
        }
    )
    if content:
        head = yield from rollout_queries.read_rollout_head(row)
        attributes |= _head_content(head) if head else {}
    return RolloutSpan(
        f"invoke_agent {row.task}",
        trace_id(row),
        span_id(row),
        0,
        row.created_at * _NANOSECONDS,
        max(ended[0].at, row.created_at) * _NANOSECONDS,
        attributes,
        error=row.state if row.state == "failed" else "",
    )


def read_step_spans(key: StepKey, content: bool) -> ReadPlan[list[RolloutSpan]]:
    """The span of one attempt at a step, and those of its samples and calls."""
    row = yield from rollout_queries.find_rollout(key.rollout)
    events = yield from journal_events.select_events(
        "rollout = ? AND step = ? AND attempt = ? AND part IS NOT NULL ORDER BY seq", key
    )
    spans = _StepSpans(row, key, content)
    for event in events:
        if event.kind in STEP_KINDS:
            spans.add(event, (yield from read_event_record(event, BODY_TYPES[event.kind], None)))
    deliveries = yield from journal_events.select_events(
        "rollout = ? AND step = ? AND kind = 'delivery'", key[:2]
    )
    return spans.finish([event.at for event in deliveries])


class _StepSpans:
    """Spans of one attempt, as its events are read in their order."""

    def __init__(self, row: RolloutRow, key: StepKey, content: bool) -> None:
        self._row, self._key, self._content = row, key, content
        self._trace = trace_id(row)
        self._id = span_id(row, *key[1:])
        self._spans: list[RolloutSpan] = []
        self._start_times: dict[str, int] = {}
        """By number of the call, when it was stored that it is about to run."""
        self._closed: tuple[JournalEvent, ObservationBody] | None = None
        self._score: float | None = None

    def add(self, event: JournalEvent, body: Any) -> None:
        """One event of it. body: None where it was erased without a remainder."""
        if body is None:
            return
        match event.kind:
            case "sample":
                self._spans.append(self._sample(event, body))
            case "intent":
                self._start_times[_number(event)] = event.at
            case "result":
                self._spans.append(self._call(event, body))
            case "observation":
                self._closed = (event, body)

    def finish(self, guidance_times: Sequence[int]) -> list[RolloutSpan]:
        """All spans, the step's first. guidance_times: when guidance was joined, microseconds."""
        if self._closed is None:
            return []
        event, closed = self._closed
        starts = [span.start for span in self._spans]
        end = event.at * _NANOSECONDS
        attributes = _without_empty(
            {
                "gen_ai.conversation.id": self._row.id,
                "houston.step": self._key.step,
                "houston.attempt": self._key.attempt,
                "houston.attention": list(closed.attention),
                "houston.files.changed": len(closed.files) + closed.more_files,
                "houston.guidance.heard": len(guidance_times),
            }
        )
        name = f"step {self._key.step}"
        if self._key.attempt > 1:
            name += f" attempt {self._key.attempt}"
        events = [SpanEvent("houston.guidance", at * _NANOSECONDS, {}) for at in guidance_times]
        if self._score is not None:
            named = {"gen_ai.evaluation.name": self._row.task}
            score = named | {"gen_ai.evaluation.score.value": self._score}
            events.append(SpanEvent("gen_ai.evaluation.result", end, score))
        step = RolloutSpan(
            name, self._trace, self._id, span_id(self._row), min([*starts, end]), end, attributes,
            error="error" if "error" in closed.attention else "", events=tuple(events),
        )  # fmt: skip
        return [step, *self._spans]

    def _sample(self, event: JournalEvent, body: SampleBody) -> RolloutSpan:
        end = event.at * _NANOSECONDS
        model = body.policy or str(body.parameters.get("model", "")) or body.engine
        sampled = body.completion_tokens
        if sampled is None and body.token_ids is not None:
            sampled = len(body.token_ids)
        attributes = _without_empty(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.conversation.id": self._row.id,
                "gen_ai.provider.name": body.engine,
                "gen_ai.request.model": model,
                "gen_ai.request.temperature": body.parameters.get("temperature"),
                "gen_ai.request.top_p": body.parameters.get("top_p"),
                "gen_ai.request.max_tokens": body.parameters.get("max_tokens"),
                "gen_ai.request.seed": body.parameters.get("seed"),
                "gen_ai.response.finish_reasons": [body.finish_reason],
                "gen_ai.usage.input_tokens": body.prompt_tokens,
                "gen_ai.usage.cache_read.input_tokens": body.cached_tokens,
                "gen_ai.usage.output_tokens": sampled,
                "gen_ai.usage.reasoning.output_tokens": body.reasoning_tokens,
                "houston.role": body.role,
                "houston.drift": body.drift,
                "houston.malformed": body.malformed,
            }
        )
        if self._content:
            attributes["gen_ai.output.messages"] = _json([_answer_message(body)])
        return RolloutSpan(
            f"chat {model}",
            self._trace,
            span_id(self._row, *self._key[1:], event.part),
            self._id,
            end - int(body.seconds * 1e9),
            end,
            attributes,
            client=True,
            error="malformed" if body.malformed else "",
        )

    def _call(self, event: JournalEvent, body: ToolResult) -> RolloutSpan:
        end = event.at * _NANOSECONDS
        began = self._start_times.get(_number(event))
        start = began * _NANOSECONDS if began else end - int(body.seconds * 1e9)
        attributes = _without_empty(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.conversation.id": self._row.id,
                "gen_ai.tool.name": body.call.name,
                "gen_ai.tool.call.id": body.call.id,
                "gen_ai.tool.type": "function",
                "error.type": "" if body.success else body.kind,
                "houston.observation": body.kind,
            }
        )
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = _json(body.call.arguments)
            attributes["gen_ai.tool.call.result"] = _cut(body.text)
        if body.kind == "eval" and body.fields.get("overall_score") is not None:
            self._score = float(body.fields["overall_score"])
        return RolloutSpan(
            f"execute_tool {body.call.name}",
            self._trace,
            span_id(self._row, *self._key[1:], event.part),
            self._id,
            min(start, end),
            end,
            attributes,
            error="" if body.success else body.kind,
        )


def _head_content(head: ContextHead) -> dict[str, AttributeValue]:
    messages = [{"role": "user", "parts": [{"type": "text", "content": _cut(head.task)}]}]
    return {
        "gen_ai.system_instructions": _json([{"type": "text", "content": _cut(head.system)}]),
        "gen_ai.input.messages": _json(messages),
    }


def _answer_message(body: SampleBody) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if body.thought:
        parts.append({"type": "text", "content": _cut(body.thought)})
    parts += [_call_part(call) for call in body.calls]
    return {"role": "assistant", "parts": parts, "finish_reason": body.finish_reason}


def _call_part(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _without_empty(values: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Those that something is known of."""
    return {name: value for name, value in values.items() if value not in (None, "", [])}


def _number(event: JournalEvent) -> str:
    """Of a call, from `intent.0` and `call.0`."""
    return (event.part or "").partition(".")[2]


def _json(value: Any) -> str:
    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    if len(text) <= MAX_ATTRIBUTE_CHARACTERS:
        return text
    return f"{text[:MAX_ATTRIBUTE_CHARACTERS]}… ({len(text):,} characters in all)"


def _hash(text: str, size: int) -> int:
    """A number of so many bytes, never 0, which is no id."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1
