"""slime's SFT: messages with `step_loss_mask` on every answer, the mask of APOLLO.

slime renders each message alone and gives it the weight that the message says; a message that says
none weighs 1. Flags: `--input-key messages --tool-key tools --loss-mask-type qwen|qwen3|…`.
"""

from itertools import pairwise
from typing import Any

from houston_daemon.training.export import conversation
from houston_daemon.training.export.format import Format, Line, provenance
from houston_daemon.training.rows.row import ChatMessage, ChatRow

MASK = "step_loss_mask"
SEVERAL = (
    "has several results in a row (a step with several calls): a slime without its change #2264"
    " puts a false turn boundary between them under --loss-mask-type qwen3"
)


def lines(row: ChatRow) -> list[Line]:
    """One line a row, also of one that trains nothing: that is refused, not left out silently."""
    messages = conversation.needed(row)
    names = conversation.names(messages)
    return [
        {
            "messages": [_message(one, names) for one in messages],
            "tools": list(row.tools),
            "metadata": provenance(row),
        }
    ]


def _message(one: ChatMessage, names: dict[str, str]) -> dict[str, Any]:
    message = one.message
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "assistant":
        made[MASK] = conversation.binary(one.weight)
    return made | conversation.with_names(message, names)


def wrong(line: Line) -> str:
    """What slime would train otherwise than we mean it."""
    messages = line["messages"]
    answers = [one for one in messages if one["role"] == "assistant"]
    if any(one.get(MASK) not in (0, 1) for one in answers):
        return f"an answer has no {MASK} of 0 or 1, and slime's default is 1"
    if any(MASK in one for one in messages if one["role"] != "assistant"):
        return f"a message that nobody sampled has a {MASK}"
    if not any(one[MASK] for one in answers):
        return (
            "nothing in it is trained: slime takes the last 0 of its mask, which is all of it"
            " (`loss_mask[-0:]`)"
        )
    if any(conversation.no_text(one) for one in messages):
        return "a message has no text"
    calls = [call["function"] for one in messages for call in one.get("tool_calls", ())]
    if any(not isinstance(call["arguments"], dict) for call in calls):
        return "arguments of a call are no object"
    if not isinstance(line["tools"], list):
        return "its tools are no list"
    if problem := conversation.no_json_in(messages):
        return f"{problem}: slime passes over lines that it cannot read"
    return conversation.writes_token(one for one in answers if one[MASK])


def remarks(line: Line) -> list[str]:
    """Several results in a row; texts that become tokens."""
    roles = [one["role"] for one in line["messages"]]
    several = any(pair == ("tool", "tool") for pair in pairwise(roles))
    read = conversation.controls(one for one in line["messages"] if not one.get(MASK))
    return [SEVERAL] * several + [conversation.READ] * bool(read)


SLIME = Format(
    name="slime",
    says="slime's SFT: messages with step_loss_mask on every answer",
    of="messages",
    lines=lines,
    wrong=wrong,
    remarks=remarks,
    answer=conversation.answer,
    traps=(
        "Flags: --input-key messages --tool-key tools --loss-mask-type qwen|qwen3|…; distill_qwen"
        " looks at the last message only.",
        "Each message is rendered alone: a stop token that belongs to the next message (GLM's"
        " <|observation|>) is not trained. Only `trl` is exact.",
        "--rollout-max-prompt-len and the like drop longer rows.",
    ),
    columns=(),
    only_lines="slime's parquet reader joins the arguments of all calls into one record, so that"
    " every call would be trained with the names of all others",
)
