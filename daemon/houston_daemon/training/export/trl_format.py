"""The TRL formats: `trl` with exact ids, labels and weights, and `trl-chat` with prompt and
completion as messages.

Since TRL 1.7 a dataset with `input_ids` and `labels` is trained as it is; `houston train sft`
reads the weights beside them. The chat form has one line for each trained answer, because
`assistant_only_loss` would train every answer of `messages`, masked ones too.
"""

import json
from itertools import compress, repeat
from operator import eq
from typing import Any

from houston_daemon.training.export import export_format
from houston_daemon.training.export.export_format import (
    COUNT_COLUMNS,
    PROVENANCE_COLUMNS,
    ExportColumn,
    ExportFormat,
    ExportLine,
    no_remarks,
    row_provenance,
)
from houston_daemon.training.rows.training_row import IGNORED_LABEL, ChatMessage, ChatRow, TokenRow


def trl_lines(row: TokenRow) -> list[ExportLine]:
    """One line a row; none where nothing of it is trained: TRL would drop it without a word."""
    if not row.trained:
        return []
    return [
        {
            "input_ids": row.token_ids.tolist(),
            "labels": row.labels().tolist(),
            "weights": row.weights().tolist(),
            **row_provenance(row),
            "tokens": len(row.token_ids),
            "trained": row.trained,
        }
    ]


def trl_problem(line: ExportLine) -> str:
    """What plain `SFTTrainer` would train otherwise than we mean it."""
    ids, labels, weights = line["input_ids"], line["labels"], line["weights"]
    if len(ids) != len(weights):
        return "ids and weights have different lengths"
    if problem := export_format.labels_problem(ids, labels):
        return problem
    untrained = labels.count(IGNORED_LABEL)
    if weights.count(0.0) + weights.count(1.0) != len(ids):
        return "a weight is neither 0 nor 1; TRL would train it as 1"
    untrained_but_weighed = any(compress(map(eq, labels, repeat(IGNORED_LABEL)), weights))
    if weights.count(0.0) != untrained or untrained_but_weighed:
        return "weights and labels do not agree"
    if line["tokens"] != len(ids) or line["trained"] != len(ids) - untrained:
        return "its counts are not those of its tokens"
    return ""


TRL = ExportFormat(
    name="trl",
    description="TRL's SFTTrainer and houston train sft: token ids with labels, trained as they"
    " are",
    unit="ids",
    lines=trl_lines,
    line_problem=trl_problem,
    remarks=no_remarks,
    warnings=(
        "SFTConfig.max_length is 1024 unless it is set, and silently cuts the end of longer rows:"
        " set it to the longest row, or to None.",
        "packing_strategy='bfd' cuts rows longer than max_length, too; without attention that"
        " knows where rows end, packed rows see each other.",
        "A mean over tokens weighs rows by their trained tokens, however a rollout was split.",
    ),
    columns=(
        ExportColumn("input_ids", "ids"),
        ExportColumn("labels", "ids"),
        ExportColumn("weights", "weights"),
        *PROVENANCE_COLUMNS,
        *COUNT_COLUMNS,
    ),
    card=True,
)


def trl_chat_lines(row: ChatRow) -> list[ExportLine]:
    """One line for each answer of the row that is trained."""
    tools = json.dumps(row.tools, ensure_ascii=False)
    names = export_format.tool_names(row.messages)
    messages = [_trl_message(entry, names) for entry in row.messages]
    return [
        {
            "prompt": messages[:at],
            "completion": [messages[at]],
            "tools": tools,
            **row_provenance(row),
            "step": entry.step,
        }
        for at, entry in enumerate(row.messages)
        if entry.weight
    ]


def _trl_message(entry: ChatMessage, names: dict[str, str]) -> dict[str, Any]:
    message = entry.message
    fields = {"role": message.role, "content": message.content}
    return fields | export_format.with_tool_name(message, names)


def trl_chat_problem(line: ExportLine) -> str:
    """What TRL would render or train otherwise than we mean it."""
    prompt, completion = line["prompt"], line["completion"]
    if len(completion) != 1 or completion[0]["role"] != "assistant":
        return "its completion is not one answer: all of it would be trained"
    if not prompt or prompt[-1]["role"] == "assistant":
        return "its prompt does not ask for an answer"
    for message in (*prompt, *completion):
        if message["role"] not in ("system", "user", "assistant", "tool"):
            return f"a message has the role {message['role']!r}"
        if export_format.has_no_text(message):
            return "a message has no text, which templates write as None"
        if problem := _calls_problem(message):
            return problem
    if not completion[0]["content"] and not completion[0].get("tool_calls"):
        return "the answer to train is empty"
    if not isinstance(line["tools"], str) or not isinstance(json.loads(line["tools"]), list):
        return "its tools are no list in JSON"
    problem = export_format.messages_not_json((*prompt, *completion))
    return problem or export_format.trained_control_token(completion)


FINE_NUMBER_REMARK = (
    "holds a number with more than 10 decimals: of JSON Lines datasets reads it rounded, of"
    " --parquet as it is"
)


def trl_chat_remarks(line: ExportLine) -> list[str]:
    """Texts that become tokens; numbers that do not come back as they are."""
    messages = [*line["prompt"], *line["completion"]]
    calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    fine = any(_has_fine_number(call["arguments"]) for call in calls)
    token = export_format.control_token_in(line["prompt"])
    return [export_format.CONTEXT_TOKEN_REMARK] * bool(token) + [FINE_NUMBER_REMARK] * fine


def _has_fine_number(value: Any) -> bool:
    """Whether a number in it has more decimals than datasets' own JSON writer gives it."""
    match value:
        case float():
            return round(value, 10) != value or abs(value) >= 1e16
        case dict():
            return any(map(_has_fine_number, value.values()))
        case list() | tuple():
            return any(map(_has_fine_number, value))
    return False


def _calls_problem(message: dict[str, Any]) -> str:
    if message["role"] == "tool" and not message.get("name"):
        return "a result names no tool"
    if message.get("tool_calls") and message["role"] != "assistant":
        return f"a message of the role {message['role']} has calls"
    for call in message.get("tool_calls", ()):
        if call["type"] != "function" or not isinstance(call["function"]["arguments"], dict):
            return "arguments of a call are no object"
    return ""


TRL_CHAT = ExportFormat(
    name="trl-chat",
    description="TRL's SFTTrainer with the model's own chat template: one prompt and answer a line",
    unit="messages",
    lines=trl_chat_lines,
    line_problem=trl_chat_problem,
    remarks=trl_chat_remarks,
    answer_problem=export_format.answer_problem,
    warnings=(
        "SFTConfig.max_length is 1024 unless it is set, and silently cuts the end of longer"
        " prompts: such a line has nothing left to train.",
        "The template renders everything anew: what the policy sampled may be tokenised otherwise,"
        " and some templates leave thoughts of earlier answers out. Only `trl` is exact.",
        "What a template writes is trained, and what it leaves out is not: GLM's ends no answer, so"
        " no stop token is trained; Llama 3.1's drops thoughts next to calls; Qwen3's writes an"
        " empty think block first.",
        "Read the folder with load_dataset(DIR): its card says that arguments are free JSON."
        " load_dataset('json', data_files=…) guesses it from the first 10 MB; a datasets without"
        " the feature type Json fills every call with the arguments of all others.",
        "completion_only_loss=False would train the prompt.",
        "The loss covers what the template writes after the answer's stop token, for example a line"
        " break.",
    ),
    columns=(
        ExportColumn("prompt", "messages"),
        ExportColumn("completion", "messages"),
        ExportColumn("tools", "text"),
        *PROVENANCE_COLUMNS,
        ExportColumn("step", "number"),
    ),
    card=True,
)
