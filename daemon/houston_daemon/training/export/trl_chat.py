"""TRL, chat: prompt and completion as messages, one line for each answer that is trained.

TRL has no choice of turns: `assistant_only_loss` trains every answer of `messages`, masked ones and
those that another row trains. A prompt with a completion is its one form that trains exactly what
we mean, and it does so whatever `assistant_only_loss` says and whether or not the template marks
answers. The price is one line a step, each with its whole past: `trl` has none of that.
"""

import json
from typing import Any

from houston_daemon.training.export import conversation
from houston_daemon.training.export.format import Column, Format, Line, provenance
from houston_daemon.training.rows.row import ChatMessage, ChatRow


def lines(row: ChatRow) -> list[Line]:
    """One line for each answer of the row that is trained."""
    tools = json.dumps(row.tools, ensure_ascii=False)
    names = conversation.names(row.messages)
    said = [_message(one, names) for one in row.messages]
    return [
        {
            "prompt": said[:at],
            "completion": [said[at]],
            "tools": tools,
            **provenance(row),
            "step": one.step,
        }
        for at, one in enumerate(row.messages)
        if one.weight
    ]


def _message(one: ChatMessage, names: dict[str, str]) -> dict[str, Any]:
    message = one.message
    made = {"role": message.role, "content": message.content}
    return made | conversation.with_names(message, names)


def wrong(line: Line) -> str:
    """What TRL would render or train otherwise than we mean it."""
    prompt, completion = line["prompt"], line["completion"]
    if len(completion) != 1 or completion[0]["role"] != "assistant":
        return "its completion is not one answer: all of it would be trained"
    if not prompt or prompt[-1]["role"] == "assistant":
        return "its prompt does not ask for an answer"
    for message in (*prompt, *completion):
        if message["role"] not in ("system", "user", "assistant", "tool"):
            return f"a message has the role {message['role']!r}"
        if conversation.no_text(message):
            return "a message has no text, which templates write as None"
        if problem := _calls(message):
            return problem
    if not completion[0]["content"] and not completion[0].get("tool_calls"):
        return "the answer to train is empty"
    if not isinstance(line["tools"], str) or not isinstance(json.loads(line["tools"]), list):
        return "its tools are no list in JSON"
    problem = conversation.no_json_in((*prompt, *completion))
    return problem or conversation.writes_token(completion)


FINE = (
    "holds a number with more than 10 decimals: of JSON Lines datasets reads it rounded, of"
    " --parquet as it is"
)


def remarks(line: Line) -> list[str]:
    """Texts that become tokens; numbers that do not come back as they are."""
    messages = [*line["prompt"], *line["completion"]]
    calls = [call["function"] for one in messages for call in one.get("tool_calls", ())]
    fine = any(_fine(call["arguments"]) for call in calls)
    read = conversation.controls(line["prompt"])
    return [conversation.READ] * bool(read) + [FINE] * fine


def _fine(value: Any) -> bool:
    """Whether a number in it has more decimals than datasets' own JSON writer gives it."""
    match value:
        case float():
            return round(value, 10) != value or abs(value) >= 1e16
        case dict():
            return any(map(_fine, value.values()))
        case list() | tuple():
            return any(map(_fine, value))
    return False


def _calls(message: dict[str, Any]) -> str:
    if message["role"] == "tool" and not message.get("name"):
        return "a result names no tool"
    if message.get("tool_calls") and message["role"] != "assistant":
        return f"a message of the role {message['role']} has calls"
    for call in message.get("tool_calls", ()):
        if call["type"] != "function" or not isinstance(call["function"]["arguments"], dict):
            return "arguments of a call are no object"
    return ""


TRL_CHAT = Format(
    name="trl-chat",
    says="TRL's SFTTrainer with the model's own chat template: one prompt and answer a line",
    of="messages",
    lines=lines,
    wrong=wrong,
    remarks=remarks,
    answer=conversation.answer,
    traps=(
        "SFTConfig.max_length is 1024 unless it is set, and cuts the end of longer prompts without"
        " a word: of such a line nothing is left to train.",
        "The template renders everything anew: what the policy sampled may be tokenised otherwise,"
        " and some templates leave thoughts of earlier answers out. Only `trl` is exact.",
        "What a template writes is trained, and what it leaves out is not: GLM's ends no answer, so"
        " that no stop token is trained; Llama 3.1's drops thoughts beside calls; Qwen3's writes an"
        " empty think block first.",
        "Read the folder with load_dataset(DIR): its card says that arguments are free JSON."
        " load_dataset('json', data_files=…) guesses it from the first 10 MB; a datasets without"
        " the feature type Json fills every call with the arguments of all others.",
        "completion_only_loss=False would train the prompt.",
        "The loss covers what the template writes after the answer's stop token, as a line break.",
    ),
    columns=(
        Column("prompt", "messages"),
        Column("completion", "messages"),
        Column("tools", "text"),
        Column("row", "text"),
        Column("rollout", "text"),
        Column("task", "text"),
        Column("kind", "text"),
        Column("provenance", "text"),
        Column("step", "number"),
    ),
    card=True,
)
