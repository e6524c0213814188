"""The format of slime's SFT: messages with `step_loss_mask` on every answer, the mask of APOLLO.

slime renders each message alone and gives it the weight that the message says. Which of its ways
to render (`--loss-mask-type`) fits depends on the model's chat template; `slime_advice` names it.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from houston_daemon.training.export import export_format
from houston_daemon.training.export.export_format import ExportFormat, ExportLine, row_provenance
from houston_daemon.training.rows.training_row import ChatMessage, ChatRow

MASK_KEY = "step_loss_mask"
SEVERAL_RESULTS_REMARK = (
    "has several results in a row (a step with several calls): a slime without its change #2264"
    " puts a false turn boundary between them under --loss-mask-type qwen3"
)


_MASK_TYPES = (("qwen3.5", "qwen3_5"), ("qwen3_5", "qwen3_5"), ("qwen3", "qwen3"), ("qwen", "qwen"))
"""Mask types by what the name of a model holds, the first that fits (slime's choices: qwen, qwen3,
qwen3_5, distill_qwen)."""
_UNSUPPORTED_MODELS = ("glm",)
_DIALECT_MASK_TYPES = {"qwen3": "qwen3", "hermes": "qwen", "chatml-json": "qwen", "glm45": ""}


def mask_type(base: str, dialect: str) -> str | None:
    """slime's mask type for a model; empty where none fits, None where the model is not known."""
    name = Path(base).name.lower()
    if any(part in name for part in _UNSUPPORTED_MODELS):
        return ""
    by_name = (type for part, type in _MASK_TYPES if part in name)
    return next(by_name, _DIALECT_MASK_TYPES.get(dialect))


def slime_advice(models: Sequence[tuple[str, str]]) -> str:
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


def slime_lines(row: ChatRow) -> list[ExportLine]:
    """One line a row, also of one that trains nothing: that is refused, not left out silently."""
    messages = export_format.needed_messages(row)
    names = export_format.tool_names(messages)
    return [
        {
            "messages": [_slime_message(message, names) for message in messages],
            "tools": list(row.tools),
            "metadata": row_provenance(row),
        }
    ]


def _slime_message(entry: ChatMessage, names: dict[str, str]) -> dict[str, Any]:
    message = entry.message
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "assistant":
        fields[MASK_KEY] = export_format.binary_weight(entry.weight)
    return fields | export_format.with_tool_name(message, names)


def slime_problem(line: ExportLine) -> str:
    """What slime would train otherwise than we mean it."""
    messages = line["messages"]
    answers = [message for message in messages if message["role"] == "assistant"]
    if any(answer.get(MASK_KEY) not in (0, 1) for answer in answers):
        return f"an answer has no {MASK_KEY} of 0 or 1, and slime's default is 1"
    if any(MASK_KEY in message for message in messages if message["role"] != "assistant"):
        return f"a message that nobody sampled has a {MASK_KEY}"
    if not any(answer[MASK_KEY] for answer in answers):
        return (
            "nothing in it is trained: slime takes the last 0 of its mask, which is all of it"
            " (`loss_mask[-0:]`)"
        )
    if any(export_format.has_no_text(message) for message in messages):
        return "a message has no text"
    calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    if any(not isinstance(call["arguments"], dict) for call in calls):
        return "arguments of a call are no object"
    if not isinstance(line["tools"], list):
        return "its tools are no list"
    if problem := export_format.messages_not_json(messages):
        return f"{problem}: slime skips lines that it cannot read"
    return export_format.trained_control_token(answer for answer in answers if answer[MASK_KEY])


def slime_remarks(line: ExportLine) -> list[str]:
    """Several results in a row; texts that become tokens."""
    roles = [message["role"] for message in line["messages"]]
    several = any(pair == ("tool", "tool") for pair in pairwise(roles))
    context = (message for message in line["messages"] if not message.get(MASK_KEY))
    token = export_format.control_token_in(context)
    return [SEVERAL_RESULTS_REMARK] * several + [export_format.CONTEXT_TOKEN_REMARK] * bool(token)


SLIME = ExportFormat(
    name="slime",
    description="slime's SFT: messages with step_loss_mask on every answer",
    unit="messages",
    lines=slime_lines,
    line_problem=slime_problem,
    remarks=slime_remarks,
    advice=slime_advice,
    answer_problem=export_format.answer_problem,
    warnings=(
        "--loss-mask-type distill_qwen looks at the last message only.",
        "Each message is rendered alone: a stop token that belongs to the next message (GLM's"
        " <|observation|>) is not trained. Only `trl` is exact.",
        "--rollout-max-prompt-len and the like drop longer rows.",
    ),
    columns=(),
    only_lines="slime's parquet reader joins the arguments of all calls into one record, so that"
    " every call would be trained with the names of all others",
)
