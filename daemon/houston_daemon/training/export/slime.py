"""slime's SFT: messages with `step_loss_mask` on every answer, the mask of APOLLO.

slime renders each message alone and gives it the weight that the message says; a message that says
none weighs 1. Which of its ways to render (`--loss-mask-type`) fits depends on the model's chat
template, and `advice` names it.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from houston_daemon.training.export import conversation
from houston_daemon.training.export.format import Format, Line, provenance
from houston_daemon.training.rows.row import ChatMessage, ChatRow

MASK = "step_loss_mask"
SEVERAL = (
    "has several results in a row (a step with several calls): a slime without its change #2264"
    " puts a false turn boundary between them under --loss-mask-type qwen3"
)


_TYPES = (("qwen3.5", "qwen3_5"), ("qwen3_5", "qwen3_5"), ("qwen3", "qwen3"), ("qwen", "qwen"))
"""Mask types by what the name of a model holds, the first that fits (slime's choices: qwen, qwen3,
qwen3_5, distill_qwen)."""
_NONE = ("glm",)
_BY_DIALECT = {"qwen3": "qwen3", "hermes": "qwen", "chatml-json": "qwen", "glm45": ""}


def mask_type(base: str, dialect: str) -> str | None:
    """slime's mask type for a model; empty where none fits, None where the model is not known."""
    name = Path(base).name.lower()
    if any(part in name for part in _NONE):
        return ""
    found = next((type for part, type in _TYPES if part in name), None)
    return _BY_DIALECT.get(dialect) if found is None else found


def advice(models: Sequence[tuple[str, str]]) -> str:
    """The flags to train these models with. models: base and dialect of each."""
    types = {mask_type(*model) for model in models}
    names = ", ".join(sorted({base or "a model that is not known" for base, _ in models}))
    flags = "Flags: --input-key messages --tool-key tools"
    if "" in types:
        return f"slime has no mask type that fits the template of {names}: use --format trl."
    if len(types) == 1 and (type := types.pop()):
        return f"{flags} --loss-mask-type {type} (for {names})."
    return (
        f"{flags} --loss-mask-type qwen3 for Qwen3, qwen3_5 for Qwen3.5, qwen for earlier Qwen and"
        f" other ChatML templates; Houston does not know which fits {names}. GLM has none."
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
    advice=advice,
    answer=conversation.answer,
    traps=(
        "--loss-mask-type distill_qwen looks at the last message only.",
        "Each message is rendered alone: a stop token that belongs to the next message (GLM's"
        " <|observation|>) is not trained. Only `trl` is exact.",
        "--rollout-max-prompt-len and the like drop longer rows.",
    ),
    columns=(),
    only_lines="slime's parquet reader joins the arguments of all calls into one record, so that"
    " every call would be trained with the names of all others",
)
