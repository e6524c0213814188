"""Rows of messages for tests: a head, then steps with thought, calls and results."""

from collections.abc import Sequence
from typing import Any

from houston_daemon.training.rows.training_row import ChatMessage, ChatRow, RowKind
from houston_shared.records import Message, ToolCall

TOOL = {
    "type": "function",
    "function": {
        "name": "run_command",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
MASKED = "mask: human no"


def said(role: Any, content: str, **fields: Any) -> Message:
    return Message(role=role, content=content, **fields)


def step(
    number: int,
    thought: str = "think",
    arguments: Sequence[dict[str, Any]] = ({"command": "ls"},),
    result: str = "a.txt",
    *,
    weight: float = 1.0,
    name: str = "run_command",
) -> list[ChatMessage]:
    """An answer with a call for each of `arguments`, and what came back; without, it has none."""
    calls = tuple(
        ToolCall(id=f"{number}.{index}", name=name, arguments=argument)
        for index, argument in enumerate(arguments)
    )
    answer = ChatMessage(
        said("assistant", thought, calls=calls), number, weight, "" if weight else MASKED
    )
    back = [said("tool", result, call_id=call.id) for call in calls] or [said("user", result)]
    return [answer, *(ChatMessage(message, number, 0.0, "") for message in back)]


def talk(
    *steps: list[ChatMessage],
    id: str = "r-1/0.0",
    kind: RowKind = "react",
    task: str = "probe",
    tools: Sequence[dict[str, Any]] = (TOOL,),
    provenance: Any = "sandbox",
) -> ChatRow:
    """A row of messages."""
    head = [said("system", "You are an agent."), said("user", "Count the words.")]
    return ChatRow(
        id=id,
        kind=kind,
        rollout=id.partition("/")[0],
        task=task,
        group="g-1",
        domain="",
        context=0,
        provenance=provenance,
        messages=(
            *(ChatMessage(message, None, 0.0, "") for message in head),
            *(
                message
                for messages in steps or (step(1), step(2, weight=0.0), step(3))
                for message in messages
            ),
        ),
        tools=tuple(tools),
    )
