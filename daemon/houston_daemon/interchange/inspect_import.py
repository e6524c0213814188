"""A log of inspect_ai as rollouts: one for each sample and epoch that a model answered.

Read by inspect_ai's own reader (the extra `inspect`), which knows every version of its format: logs
are zip files or JSON with pooled messages and attachments. A rollout is the sample's conversation
as it stood at the end (`messages`); tokens, times and tools are those of its model events.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from houston_daemon.interchange.imported_rollout import (
    NOTHING_IMPORTED,
    ImportedRollout,
    foreign_sample,
)
from houston_shared.control_messages import ImportRollout
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import SampledElsewhere, ToolCall
from houston_shared.times_and_counts import iso_time

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool

GIVEN_REASON = "the sample's input holds it: no model answered it here"
_HEAD_BYTES = 4_000
"""Bytes in which a log's version and `eval` stand, where it is one."""


def is_json_log(data: bytes) -> bool:
    """Whether a JSON file begins as a log of inspect_ai does."""
    begins = data[:_HEAD_BYTES]
    return b'"eval"' in begins and b'"version"' in begins and b'"schema_version"' not in begins


def read_log(path: Path, request: str, task: str = "") -> Iterator[ImportRollout]:
    """The rollouts of a log, in its order.

    request: the key of the file; each sample adds its own. task: their task's name, else the
    log's. Raises ConfigurationError without the extra, HoustonError for what is no log, or one in
    which no model answered.
    """
    log = _load(path)
    samples = log.samples or []
    answered = [sample for sample in samples if any(m.role == "assistant" for m in sample.messages)]
    if not answered:
        raise HoustonError(
            f"{path.name} has {len(samples)} samples, but no model answered in any of them.",
            NOTHING_IMPORTED,
        )
    for number, sample in enumerate(answered, 1):
        rollout = _convert_sample(log, sample, path.name)
        name = task or log.eval.task.rpartition("/")[2]
        yield rollout.message(name, f"{request}-{number}", f"inspect-{log.eval.eval_id[:12]}")


def _load(path: Path) -> "EvalLog":
    try:
        from inspect_ai.log import read_eval_log  # 2 s, and an extra
    except ImportError:
        raise ConfigurationError(
            f"{path.name} is a log of inspect_ai, which is read by its own package.",
            NOTHING_IMPORTED,
            "pip install 'houston-agents[inspect]'",
        ) from None
    try:
        return read_eval_log(str(path), resolve_attachments=True)
    except Exception as problem:  # its reader raises what zip, JSON and pydantic do
        reason = " ".join(str(problem).split())[:300]
        raise HoustonError(
            f"inspect_ai cannot read {path.name}: {reason}", NOTHING_IMPORTED
        ) from problem


@dataclass(slots=True)
class _ModelEvents:
    """What the events of a sample say of its answers."""

    tokens: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """By message."""
    finish: dict[str, str] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name, in OpenAI's form."""


def _read_events(sample: "EvalSample") -> _ModelEvents:
    read = _ModelEvents()
    for event in sample.events:
        if event.event != "model":
            continue
        for tool in event.tools:
            schema = tool.parameters.model_dump(exclude_none=True, by_alias=True)
            function = {"name": tool.name, "description": tool.description, "parameters": schema}
            read.tools.setdefault(tool.name, {"type": "function", "function": function})
        for choice in event.output.choices:
            if not (id := choice.message.id):
                continue  # of an old log: nothing says which answer it is
            read.finish[id] = "length" if choice.stop_reason == "max_tokens" else choice.stop_reason
            if event.completed or event.timestamp:
                read.times[id] = (event.completed or event.timestamp).timestamp()
            if (usage := event.output.usage) is not None:
                read.tokens[id] = {
                    # inspect_ai counts what came from the cache apart.
                    "prompt_tokens": usage.input_tokens
                    + (usage.input_tokens_cache_read or 0)
                    + (usage.input_tokens_cache_write or 0),
                    "cached_tokens": usage.input_tokens_cache_read,
                    "completion_tokens": usage.output_tokens,
                    "reasoning_tokens": usage.reasoning_tokens,
                }
    return read


def _convert_sample(log: "EvalLog", sample: "EvalSample", file: str) -> ImportedRollout:
    version = log.eval.packages.get("inspect_ai", "")
    source = SampledElsewhere(
        format=f"inspect_ai {version}".strip(),
        agent=f"{log.eval.solver or 'inspect_ai'} {version}".strip(),
        id=f"{sample.id}, epoch {sample.epoch}",
        file=file,
    )
    rollout = ImportedRollout(source, log.eval.model)
    events = _read_events(sample)
    rollout.tools = tuple(events.tools.values())
    input_places = _input_places(sample)
    for place, message in enumerate(sample.messages):
        _take_message(rollout, message, events, place in input_places)
    _take_scores(rollout, sample)
    if sample.error is not None:
        rollout.state, rollout.reason = "failed", sample.error.message
    elif sample.limit is not None:
        rollout.reason = f"limit: {sample.limit.type} ({sample.limit.limit:g})"
    return rollout


def _input_places(sample: "EvalSample") -> set[int]:
    """Which of the messages the sample's input holds: by their ids, or in an old log, whose
    messages have none, those at the beginning where they are the same."""
    if isinstance(sample.input, str):
        return set()
    if ids := {message.id for message in sample.input if message.id}:
        return {place for place, each in enumerate(sample.messages) if each.id in ids}
    input_length = len(sample.input)
    return set(range(input_length)) if sample.messages[:input_length] == sample.input else set()


def _take_scores(rollout: ImportedRollout, sample: "EvalSample") -> None:
    """One evaluation: the first scorer's value counts, those of all are its metrics."""
    scores = sample.scores or {}
    if not scores:
        return
    lines = [f"{name}: {score.value}" for name, score in scores.items()]
    first = next(iter(scores.values()))
    if first.explanation:
        lines.append(first.explanation)
    metrics = {name: _plain(score.value) for name, score in scores.items()}
    rollout.score(_number(first.value), "\n".join(lines), metrics)


def _take_message(
    rollout: ImportedRollout, message: "ChatMessage", events: _ModelEvents, is_input: bool
) -> None:
    match message.role:
        case "system":
            rollout.system(_text(rollout, message))
        case "user":
            author = "operator" if message.source == "operator" else "user"
            rollout.user(_text(rollout, message), author)
        case "assistant":
            id = message.id or ""
            mask = GIVEN_REASON if is_input or message.source == "input" else ""
            rollout.answer(_sample(rollout, message, events), mask)
            if id in events.times:
                rollout.at(events.times[id])
        case "tool":
            _take_tool_result(rollout, message)


def _sample(rollout: ImportedRollout, message: "ChatMessageAssistant", events: _ModelEvents) -> Any:
    id = message.id or ""
    calls = tuple(
        ToolCall(
            id=call.id,
            name=call.function,
            arguments=call.arguments,
            error=call.parse_error or "",
        )
        for call in message.tool_calls or ()
    )
    return foreign_sample(
        _text(rollout, message),
        calls,
        message.model or "",
        finish_reason=events.finish.get(id, "stop"),
        tokens=events.tokens.get(id),
        facts={
            "timestamp": iso_time(round(events.times[id] * 1e6)) if id in events.times else None
        },
    )


def _take_tool_result(rollout: ImportedRollout, message: "ChatMessageTool") -> None:
    text = _text(rollout, message)
    if message.error is not None:
        text = "\n".join(filter(None, (text, f"{message.error.type}: {message.error.message}")))
    kind = "error" if message.error is not None else "result"
    rollout.result(message.tool_call_id or "", text, success=message.error is None, kind=kind)


def _text(rollout: ImportedRollout, message: "ChatMessage") -> str:
    """All that a message says in words; of everything else a line that names it."""
    lines = []
    for part in message.content_list:
        match part.type:
            case "text":
                lines.append(part.text)
            case "reasoning":
                lines.append(part.summary or "" if part.redacted else part.reasoning)
            case "tool_use":
                lines.append(f"[{part.name} {part.arguments}]\n{part.result}")
            case other:
                rollout.leave_out(other)
                lines.append(f"[{other}]")
    return "\n".join(filter(None, lines))


def _number(value: Any) -> float | None:
    """A score from 0 to 1 as inspect_ai's own metrics read it; None for several values at once."""
    from inspect_ai.scorer import value_to_float

    return None if isinstance(value, Mapping | list) else value_to_float()(value)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))
