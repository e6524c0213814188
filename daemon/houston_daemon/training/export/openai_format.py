"""The format of OpenAI's chat fine-tuning: messages with `weight` on every answer, arguments as
JSON in a string.

Its interface takes no column of ours, so an index beside the file says which line is which row.
Lines are checked for what the interface would refuse or train otherwise than we mean.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from houston_daemon.training.export import export_format
from houston_daemon.training.export.export_format import ExportFormat, ExportLine, no_remarks
from houston_daemon.training.rows.training_row import ChatMessage, ChatRow

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_TOOLS = 128
"""Most functions of one line."""
MAX_CALL_ID_CHARACTERS = 40
"""Longest id of a call."""
ALLOWED_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "weight", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
"""What a message of a role may say."""


def openai_lines(row: ChatRow) -> list[ExportLine]:
    """One line a row, up to the last answer that is trained."""
    messages = [_openai_message(message) for message in export_format.needed_messages(row)]
    line: ExportLine = {"messages": messages}
    if row.tools:
        line["tools"] = list(row.tools)
        line["parallel_tool_calls"] = _has_parallel_calls(messages)
    return [line]


def _openai_message(entry: ChatMessage) -> dict[str, Any]:
    message = entry.message
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "assistant":
        fields["weight"] = export_format.binary_weight(entry.weight)
    if message.calls:
        fields["tool_calls"] = export_format.with_text_arguments(message)
    if message.role == "tool":
        fields["tool_call_id"] = message.call_id
    return fields


def _has_parallel_calls(messages: Sequence[dict[str, Any]]) -> bool:
    return any(len(message.get("tool_calls", ())) > 1 for message in messages)


def openai_problem(line: ExportLine) -> str:
    """What the interface would refuse, or train otherwise than we mean it."""
    messages = line["messages"]
    problems = (
        _weights_problem(messages),
        next(filter(None, map(_message_problem, messages)), ""),
        _unanswered_call_problem(messages),
        _tools_problem(line, messages),
        export_format.messages_not_json(messages),
    )
    return next(filter(None, problems), "")


def _weights_problem(messages: Sequence[dict[str, Any]]) -> str:
    answers = [message for message in messages if message["role"] == "assistant"]
    if any(answer.get("weight") not in (0, 1) for answer in answers):
        return "an answer has no weight of 0 or 1, and the default is 1"
    if not any(answer["weight"] for answer in answers):
        return "nothing in it is trained"
    return "" if messages[-1]["role"] == "assistant" else "its last message is no answer"


def _message_problem(message: dict[str, Any]) -> str:
    role = message["role"]
    if unknown := set(message) - ALLOWED_KEYS.get(role, set()):
        return f"a message of the role {role} has the key {sorted(unknown)[0]!r}"
    if export_format.has_no_text(message):
        return "a message has no text"
    if role == "assistant" and not message["content"] and not message.get("tool_calls"):
        return "an answer is empty"
    for call in message.get("tool_calls", ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if not TOOL_NAME.fullmatch(name):
            return f"{name!r} is not a function name: letters, digits, _ and -, at most 64"
        if not isinstance(arguments, str) or not _is_json_object(arguments):
            return f"arguments of {name} are no JSON object in a string"
        if not call["id"] or len(call["id"]) > MAX_CALL_ID_CHARACTERS:
            return f"the id of a call is empty or has more than {MAX_CALL_ID_CHARACTERS} characters"
    return ""


def _is_json_object(text: str) -> bool:
    """Whether a text is a JSON object as the standard has it, without NaN."""
    try:
        return isinstance(_STRICT_JSON.decode(text), dict)
    except ValueError:
        return False


def _refuse_constant(constant: str) -> None:
    raise ValueError(constant)


_STRICT_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def _unanswered_call_problem(messages: Sequence[dict[str, Any]]) -> str:
    """Every call but those of the last message is answered, once, before anything else is said."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return "a result answers no call of the message before it"
            open_calls.discard(message["tool_call_id"])
            continue
        if open_calls:
            return f"the call {min(open_calls)} has no result"
        calls = message.get("tool_calls", ())
        open_calls = {call["id"] for call in calls}
        if len(open_calls) != len(calls):
            return "two calls have one id"
    return ""


def _tools_problem(line: ExportLine, messages: Sequence[dict[str, Any]]) -> str:
    tools = line.get("tools")
    if tools is None:
        called = any(message.get("tool_calls") for message in messages)
        return "it has calls and names no tools" if called else ""
    if not 1 <= len(tools) <= MAX_TOOLS:
        return f"it has {len(tools)} tools, at most {MAX_TOOLS} are allowed"
    names = [tool["function"]["name"] for tool in tools]
    if bad := [name for name in names if not TOOL_NAME.fullmatch(name)]:
        return f"{bad[0]!r} is not a function name: letters, digits, _ and -, at most 64"
    if _has_parallel_calls(messages) and not line["parallel_tool_calls"]:
        return "an answer has several calls, but parallel_tool_calls is false"
    return ""


OPENAI = ExportFormat(
    name="openai",
    description="OpenAI's chat fine-tuning: messages with a weight on every answer",
    unit="messages",
    lines=openai_lines,
    line_problem=openai_problem,
    remarks=no_remarks,  # what this consumer does not take, it refuses aloud
    warnings=(
        "data.rows.jsonl, next to it, gives the row of each line and whether its rollout ran in a"
        " sandbox, which the file itself cannot hold.",
        "A file needs at least 10 lines and holds at most 512 MB.",
        "Lines longer than the model's context silently lose their end, which holds the newest"
        " answers.",
    ),
    columns=(),
    only_lines="OpenAI takes JSON Lines only",
    index=True,
)
