"""What chat formats share: which messages a line needs, and how calls and results are named.

Consumers differ in everything else, so that each says its own messages in its own module.
"""

import json
from collections.abc import Sequence
from typing import Any

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


def no_text(message: dict[str, Any]) -> bool:
    """Whether `content` is no text: templates write `None`, or fail."""
    return not isinstance(message.get("content"), str)
