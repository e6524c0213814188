"""What an export format is: how a row becomes lines, and what the consumer of a line would get
wrong.

An `ExportFormat` is pure: the same row gives the same lines, and nothing is read or written. What
chat formats share stands here too: which messages a line needs, how calls and results are named,
and texts that a template's tokenizer would take for its own tokens. Each consumer's format has a
module of its own.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from houston_daemon.training.credit.credited_rows import CreditedRow, RolloutCredit
from houston_daemon.training.credit.policy_gradient_rows import PolicyGradientRow
from houston_daemon.training.rows.training_row import (
    IGNORED_LABEL,
    ChatMessage,
    ChatRow,
    TokenRow,
)
from houston_shared.records import Message
from houston_shared.safe_text import is_utf8

ExportLine: TypeAlias = dict[str, Any]
"""One line of a data file: JSON values only."""
ExportColumnType = Literal["ids", "weights", "text", "number", "real", "messages", "spans"]


@dataclass(frozen=True, slots=True)
class ExportColumn:
    """One column of a line, for parquet and for the dataset card."""

    name: str
    type: ExportColumnType


class RunRow(NamedTuple):
    """A row of a run of reinforcement learning, for formats that take credit."""

    credited: CreditedRow
    credit: RolloutCredit
    rollout_number: int
    """Of its rollout among those of the export, from 0."""
    group_number: int
    """Of its group, from 0."""


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One consumer's file format."""

    name: str
    description: str
    """Who reads it, in a line."""
    unit: Literal["ids", "messages"]
    """Which rows it is made of."""
    lines: Callable[[Any], list[ExportLine]]
    """A `TokenRow` or `ChatRow`, of a format with credit a `RunRow`, as lines; none where nothing
    of it would be trained and the consumer takes no such line, or would drop it."""
    line_problem: Callable[[ExportLine], str]
    """What the consumer would get wrong or refuse, in words; empty for a line that is right."""
    remarks: Callable[[ExportLine], Sequence[str]]
    """What is true of a line that its reader must know; counted in the manifest."""
    warnings: tuple[str, ...]
    """What the consumer does without a word, and what to set against it."""
    columns: tuple[ExportColumn, ...]
    """Empty where the consumer reads JSON Lines only."""
    advice: Callable[[Sequence[tuple[str, str]]], str] = lambda models: ""
    """What to set for these models, each a base's name and its dialect; empty for nothing."""
    answer_problem: Callable[[Message], str] = lambda message: ""
    """What the consumer would get wrong of one answer to train; the rest of its row is right."""
    only_lines: str = ""
    """Why there is no parquet file of it; empty where there is."""
    card: bool = False
    """Whether `datasets` reads the folder: then its card names the columns."""
    index: bool = False
    """Whether lines have no room for where they come from."""
    untrained: bool = False
    """Whether a file in which nothing is trained is of use to the consumer, too."""
    credited: bool = False
    """Whether it takes rewards and advantages: then its rows are those of a finished run."""
    arrow: bool = False
    """Whether data files are Arrow streams, the consumer's only form."""
    support_files: Callable[[Sequence[tuple[str, str]]], Mapping[str, bytes]] = lambda _: {}
    """Files beside the data that the consumer needs to read it, by path in the folder. Asked with
    name and SHA-256 of each data file."""


def no_remarks(line: ExportLine) -> Sequence[str]:
    """No remark."""
    return ()


def labels_problem(ids: Sequence[int], labels: Sequence[int]) -> str:
    """Why ids and labels (-100 where not trained) are no row that can be trained; empty when they
    are one."""
    if len(ids) != len(labels):
        return "its ids and what is trained of them have different lengths"
    if not ids or min(ids) < 0:
        return "it has no ids, or a negative one"
    untrained = labels.count(IGNORED_LABEL)
    if sum(map(eq, ids, labels)) + untrained != len(ids):
        return "a label is neither its id nor -100"
    if untrained == len(ids):
        return "nothing in it is trained"
    if labels[0] != IGNORED_LABEL:
        return "its first token is to be trained, which nothing predicts"
    return ""


def logprobs_of_trained(row: PolicyGradientRow) -> list[float]:
    """Log-probabilities of a row's completion: 0.0 where nothing is trained, NaN where something is
    and the engine did not say how likely it was."""
    return [
        value if trained else 0.0
        for value, trained in zip(row.sampled_logprobs, row.mask, strict=True)
    ]


def trained_policies(row: TokenRow) -> list[str]:
    """Versions that sampled what a row trains, in order; `base` for the engine's own model."""
    return list(dict.fromkeys(span.policy or "base" for span in row.spans if span.weight))


def credit_problem(mask: Sequence[int], logprobs: Sequence[float]) -> str:
    """Why a completion cannot be trained with an importance ratio; empty when it can."""
    if mask.count(0) + mask.count(1) != len(mask):
        return "a mask is neither 0 nor 1"
    if not mask.count(1):
        return "nothing in it is trained"
    if not all(map(math.isfinite, logprobs)):
        return (
            "the log-probability with which a trained token was drawn is not known (purified, a"
            " temperature, a grammar, or an engine that gave none), and would be read as 0.0, as"
            " if the token had been certain"
        )
    return ""


PROVENANCE_COLUMNS = tuple(
    ExportColumn(name, "text") for name in ("row", "rollout", "task", "kind", "provenance")
)
"""The columns of `row_provenance`."""
COUNT_COLUMNS = (ExportColumn("tokens", "number"), ExportColumn("trained", "number"))
"""How many tokens a line has, and how many of them are trained."""


def row_provenance(row: TokenRow | ChatRow) -> ExportLine:
    """Where a line comes from; `provenance` is `none` for a rollout without a sandbox."""
    return {
        "row": row.id,
        "rollout": row.rollout,
        "task": row.task,
        "kind": row.kind,
        "provenance": row.provenance,
    }


def not_json_reason(value: Any, depth: int = 0) -> str:
    """Why a value is none that every JSON reader gives back; empty when it is one.

    Models write NaN and what Python's reader takes for a number, and nest as deep as they like.
    """
    match value:
        case str():
            return "" if is_utf8(value) else "half a character, which is no UTF-8"
        case float() if not math.isfinite(value):
            return f"the number {value}, which JSON does not have"
        case int() if not -(2**63) <= value < 2**64:
            return "a whole number past 64 bits"
        case dict() | list() | tuple() if depth > MAX_JSON_DEPTH:
            return f"values nested more than {MAX_JSON_DEPTH} deep"
        case dict():
            parts: Sequence[Any] = [*value.keys(), *value.values()]
        case list() | tuple():
            parts = value
        case _:
            return ""
    return next(filter(None, (not_json_reason(part, depth + 1) for part in parts)), "")


MAX_JSON_DEPTH = 64
"""Nesting that every reader takes; pandas and Arrow give up at a few hundred."""


def needed_messages(row: ChatRow) -> Sequence[ChatMessage]:
    """Messages up to the last one that is trained: what follows is seen by none of them.

    All of them where none is trained.
    """
    last = max((at for at, message in enumerate(row.messages) if message.weight), default=None)
    return row.messages if last is None else row.messages[: last + 1]


def tool_names(messages: Sequence[ChatMessage]) -> dict[str, str]:
    """Tool of each call, by the call's id."""
    return {call.id: call.name for message in messages for call in message.message.calls}


def with_object_arguments(message: Message) -> list[dict[str, Any]]:
    """Calls as templates take them: arguments are an object."""
    return [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]


def with_tool_name(message: Message, names: dict[str, str]) -> dict[str, Any]:
    """What templates take beside role and content: calls, or the tool whose result it is."""
    fields: dict[str, Any] = {}
    if message.calls:
        fields["tool_calls"] = with_object_arguments(message)
    if message.role == "tool":
        fields["name"] = names.get(message.call_id, "")
    return fields


_ARGUMENTS_JSON = json.JSONEncoder(ensure_ascii=False)


def with_text_arguments(message: Message) -> list[dict[str, Any]]:
    """Calls as OpenAI's interface has them: with an id, arguments are JSON in a string."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": _ARGUMENTS_JSON.encode(call.arguments),
            },
        }
        for call in message.calls
    ]


def binary_weight(weight: float) -> int | float:
    """A weight as consumers of chat rows know it: 0 or 1; any other stays what it is, and is then
    refused."""
    return int(weight) if weight in (0.0, 1.0) else weight


CONTROL_TOKEN = re.compile(
    r"<[|｜](?!/?real_user)[^<>|｜\s]{1,40}[|｜]>|<(?:start|end)_of_turn>|\[gMASK\]|<[se]op>"
)
"""How families write the tokens that begin and end turns; none of them has a `real_user`."""


def control_token_in(messages: Iterable[dict[str, Any]]) -> str:
    """The first text in messages that a template's tokenizer takes for a token of its own.

    A rollout never does: Houston's dialects write content as letters. Whoever renders messages
    through a chat template has no such choice.
    """
    for message in messages:
        texts = [message["content"]] if isinstance(message.get("content"), str) else []
        texts += [
            msgspec.json.encode(call["function"]["arguments"]).decode()
            for call in message.get("tool_calls", ())
        ]
        for text in texts:
            # Most texts have neither, and a `find` is 50 times as fast as the pattern.
            if ("<" in text or "[gMASK]" in text) and (match := CONTROL_TOKEN.search(text)):
                return match[0]
    return ""


def trained_control_token(messages: Iterable[dict[str, Any]]) -> str:
    """Why answers cannot be trained that write such a text; empty when none does."""
    token = control_token_in(messages)
    if not token:
        return ""
    return f"an answer has {token!r}, which templates turn into a token that begins or ends a turn"


def answer_problem(message: Message) -> str:
    """The same of one answer, as rows have it."""
    try:
        calls = with_object_arguments(message)
        return trained_control_token([{"content": message.content, "tool_calls": calls}])
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return ""  # the line says so


CONTEXT_TOKEN_REMARK = (
    "holds text in what is not trained that reads like a template's own token, and becomes one:"
    " there the context is not what the policy saw"
)
"""Said of lines whose context has such a text."""


def messages_not_json(messages: Iterable[dict[str, Any]]) -> str:
    """What of messages no JSON reader would give back; empty when all is well."""
    for message in messages:
        arguments = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
        for value in (message["content"], *arguments):
            if problem := not_json_reason(value, depth=1):
                return problem
    return ""


def has_no_text(message: dict[str, Any]) -> bool:
    """Whether `content` is no text: templates write `None`, or fail."""
    return not isinstance(message.get("content"), str)
