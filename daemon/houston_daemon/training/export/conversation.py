"""What chat formats share: which messages a line needs, and how calls and results are named.

Consumers differ in everything else, so that each says its own messages in its own module.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from houston_daemon.training.export.format import no_json
from houston_daemon.training.rows.row import ChatMessage, ChatRow
from houston_shared.records import Message


def needed(row: ChatRow) -> Sequence[ChatMessage]:
    """Messages up to the last one that is trained: what follows is seen by none of them.

    All of them where none is trained.
    """
    last = max((at for at, one in enumerate(row.messages) if one.weight), default=None)
    return row.messages if last is None else row.messages[: last + 1]


def names(messages: Sequence[ChatMessage]) -> dict[str, str]:
    """Tool of each call, by the call's id."""
    return {call.id: call.name for one in messages for call in one.message.calls}


def with_objects(message: Message) -> list[dict[str, Any]]:
    """Calls as templates take them: arguments are an object."""
    return [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]


def with_names(message: Message, names: dict[str, str]) -> dict[str, Any]:
    """What templates take beside role and content: calls, or the tool whose result it is."""
    made: dict[str, Any] = {}
    if message.calls:
        made["tool_calls"] = with_objects(message)
    if message.role == "tool":
        made["name"] = names.get(message.call_id, "")
    return made


def with_texts(message: Message) -> list[dict[str, Any]]:
    """Calls as OpenAI's interface has them: with an id, arguments are JSON in a string."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments, ensure_ascii=False),
            },
        }
        for call in message.calls
    ]


def binary(weight: float) -> int | float:
    """A weight as consumers of chat rows know it: 0 or 1; any other stays what it is, and is then
    refused."""
    return int(weight) if weight in (0.0, 1.0) else weight


CONTROL = re.compile(
    r"<[|｜](?!/?real_user)[^<>|｜\s]{1,40}[|｜]>|<(?:start|end)_of_turn>|\[gMASK\]|<[se]op>"
)
"""How families write the tokens that begin and end turns; none of them has a `real_user`."""


def controls(messages: Iterable[dict[str, Any]]) -> str:
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
            if ("<" in text or "[gMASK]" in text) and (found := CONTROL.search(text)):
                return found[0]
    return ""


def writes_token(messages: Iterable[dict[str, Any]]) -> str:
    """Why answers cannot be trained that write such a text; empty when none does."""
    token = controls(messages)
    if not token:
        return ""
    return f"an answer writes {token!r}, which templates make a token that ends or begins a turn"


def answer(message: Message) -> str:
    """The same of one answer, as rows have it."""
    try:
        calls = with_objects(message)
        return writes_token([{"content": message.content, "tool_calls": calls}])
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return ""  # the line says so


READ = (
    "holds text in what is not trained that reads like a template's own token, and becomes one:"
    " there the context is not what the policy saw"
)
"""Said of lines whose context has such a text."""


def no_json_in(messages: Iterable[dict[str, Any]]) -> str:
    """What of messages no JSON reader would give back; empty when all is well."""
    for message in messages:
        arguments = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
        if problem := no_json([message["content"], *arguments]):
            return problem
    return ""


def no_text(message: dict[str, Any]) -> bool:
    """Whether `content` is no text: templates write `None`, or fail."""
    return not isinstance(message.get("content"), str)
