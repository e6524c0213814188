"""GLM-4.5: roles as special tokens, calls with `<arg_key>` and `<arg_value>`.

An answer ends with the *next* role's token (`<|observation|>` after calls, `<|user|>` without), so
what was sampled already opens the next message. With reasoning off the opening carries an empty
think block and the user's text ends in `/nothink`, as the family's template writes it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.dialects import calls as read
from houston_daemon.dialects.chatml_json import content, template
from houston_daemon.dialects.hermes import split_reasoning, tool_blocks
from houston_daemon.dialects.protocol import Action, Piece, ToolText
from houston_daemon.environments.protocol import ToolSpec
from houston_shared.records import Call

_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_FORM = (
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n"
    "<arg_value>{arg-value-1}</arg_value>\n...\n</tool_call>"
)


class Glm45:
    """GLM-4.5's roles and XML calls."""

    name = "glm45"
    stop_tokens: tuple[str, ...] = ("<|observation|>", "<|user|>", "<|endoftext|>")
    answer_tokens: tuple[str, ...] = (
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
    )
    form = "<tool_call>tool\n<arg_key>name</arg_key>\n<arg_value>value</arg_value>\n</tool_call>"

    def __init__(self, reasoning: bool = False) -> None:
        self._opening = "<|assistant|>" if reasoning else "<|assistant|>\n<think></think>"
        self._reasoning = reasoning
        self._switch = "" if reasoning else "/nothink"

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[Piece]:
        """See `Dialect.head`."""
        listed = read.signatures(tools) if short else read.schemas(tools)
        return [
            template("[gMASK]<sop><|system|>\n"),
            content("# Tools\n\nThe tools and their arguments:\n"),
            template("<tools>\n"),
            content(listed),
            template("\n</tools>\n\n"),
            content("Write a short thought, then each call in this form:\n"),
            template(f"{_FORM}<|system|>\n"),
            content(system),
            template("<|user|>\n"),
            content(task),
            template(f"{self._switch}{self._opening}"),
        ]

    def question(self, system: str, text: str) -> list[Piece]:
        """See `Dialect.question`."""
        return [
            template("[gMASK]<sop><|system|>\n"),
            content(system),
            template("<|user|>\n"),
            content(text),
            template(f"{self._switch}{self._opening}"),
        ]

    def observation(
        self, results: Sequence[ToolText], tail: str, stop: str | None = None
    ) -> list[Piece]:
        """See `Dialect.observation`; the sampled role token opens the message where it can."""
        opened = stop in ("<|observation|>", "<|user|>") or stop is None
        pieces = [] if opened else [template("<|observation|>" if results else "<|user|>")]
        for one in results:
            pieces += [
                template("\n<tool_response>\n"),
                content(one.text),
                template("\n</tool_response>"),
            ]
        if tail:
            pieces += [template("\n"), content(tail)]
        return [*pieces, template(self._opening)]

    def assistant(self, thought: str, calls: Sequence[Call]) -> list[Piece]:
        """See `Dialect.assistant`; closed by the token of the message that follows."""
        pieces = [template("\n"), content(thought)] if thought else []
        if self._reasoning and thought and calls:  # as its template writes an action's thought
            pieces = [template("\n<think>"), content(thought), template("</think>")]
        for call in calls:
            pieces += [template("\n<tool_call>"), content(call.name)]
            for key, value in call.arguments.items():
                text = value if isinstance(value, str) else read.compact(value)
                pieces += [
                    template("\n<arg_key>"),
                    content(key),
                    template("</arg_key>\n<arg_value>"),
                    content(text),
                    template("</arg_value>"),
                ]
            pieces.append(template("\n</tool_call>"))
        return [*pieces, template("<|observation|>" if calls else "<|user|>")]

    def parse(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> Action:
        """See `Dialect.parse`."""
        reasoning, answer = split_reasoning(text)
        try:
            blocks = tool_blocks(answer)
            calls = read.limited([_call(b, step, i, tools) for i, b in enumerate(blocks)])
        except read.Unreadable as problem:
            return Action(thought=text, calls=(), malformed=str(problem))
        said = answer.split("<tool_call>", 1)[0].strip()
        return Action(thought="\n".join(filter(None, (reasoning, said))), calls=calls)

    def grammar(
        self, tools: Sequence[ToolSpec], answer_tokens: int = 1024
    ) -> Mapping[str, Any] | None:
        """None: the form is no JSON, and the family knows it by training."""
        return None


def _call(block: str, step: int, index: int, tools: Mapping[str, ToolSpec]) -> Call:
    name = block.split("<arg_key>", 1)[0].strip()
    properties = tools[name].parameters.get("properties", {}) if name in tools else {}
    arguments = {
        key.strip(): _value(value, properties.get(key.strip(), {}))
        for key, value in _ARGUMENT.findall(block)
    }
    return read.make(name, arguments, step, index, tools)


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """An argument as its schema says: text stays as written, everything else is JSON."""
    if schema.get("type") == "string":
        return text
    try:
        return read.read_json(text.strip())
    except read.Unreadable:
        return text  # the environment says what type it wants
