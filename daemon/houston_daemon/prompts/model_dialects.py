"""How model families write: ChatML with JSON, Hermes (Qwen 2.5), Qwen3, GLM-4.5; chosen by name.

Each dialect renders head, observations and answers as pieces and parses a sampled text into an
action. A new model family is an entry point of the group `houston.dialects`; those of the package
`renderers` are in `renderer_families`. No dialect keeps state or re-tokenises what was sampled.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts import dialect_protocol as read
from houston_daemon.prompts.answer_grammar import answer_schema
from houston_daemon.prompts.dialect_protocol import (
    AgentAction,
    Dialect,
    PromptPiece,
    PromptToolResult,
)
from houston_daemon.prompts.planner_dialect import PLANNER_PREFIX, planner_dialect
from houston_shared import plugins
from houston_shared.records import ToolCall

_ASSISTANT_OPENING = "<|im_start|>assistant\n"


def template_piece(text: str) -> PromptPiece:
    """The dialect's own markup."""
    return PromptPiece(text, True)


def content_piece(text: str) -> PromptPiece:
    """Text in which special tokens are ordinary letters."""
    return PromptPiece(text, False)


def chatml_prompt(system: str, text: str, opening: str) -> list[PromptPiece]:
    """A system prompt and one user message, up to `opening` of the answer."""
    return [
        template_piece("<|im_start|>system\n"),
        content_piece(system),
        template_piece("<|im_end|>\n<|im_start|>user\n"),
        content_piece(text),
        template_piece(f"<|im_end|>\n{opening}"),
    ]


class ChatmlJsonDialect(read.FamilyDialect):
    """ChatML, calls as JSON."""

    name = "chatml-json"
    stop_tokens: tuple[str, ...] = ("<|im_end|>",)
    form = '{"thought": "…", "calls": [{"name": "…", "arguments": {…}}]}'

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """See `Dialect.head`."""
        listed = read.tool_signatures(tools) if short else read.tool_schemas(tools)
        system_text = (
            f"{system}\n\n# Tools\n{listed}\n\n# Answer\n"
            f"Each answer is one JSON object and nothing else:\n{self.form}"
        )
        return chatml_prompt(system_text, task, _ASSISTANT_OPENING)

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """See `Dialect.question`."""
        return chatml_prompt(system, text, _ASSISTANT_OPENING)

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """See `Dialect.observation`: one user message."""
        text = "\n".join(part for part in (*(result.text for result in results), tail) if part)
        closing = "" if stop in (None, "<|im_end|>") else "<|im_end|>"
        return [
            template_piece(f"{closing}\n<|im_start|>user\n"),
            content_piece(text),
            template_piece(f"<|im_end|>\n{_ASSISTANT_OPENING}"),
        ]

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`; without calls the thought stands as plain text."""
        return [content_piece(self._format_answer(thought, calls)), template_piece("<|im_end|>")]

    def _format_answer(self, thought: str, calls: Sequence[ToolCall]) -> str:
        if not calls:
            return thought
        listed = [{"name": call.name, "arguments": call.arguments} for call in calls]
        return read.compact_json({"thought": thought, "calls": listed})

    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `FamilyDialect.read_action`."""
        answer = read.parse_json(read.strip_code_fence(text))
        if not isinstance(answer, dict) or not isinstance(answer.get("calls"), list):
            raise read.UnreadableAnswer("it is no object with a list `calls`")
        thought = answer.get("thought", "")
        if not isinstance(thought, str):
            raise read.UnreadableAnswer("`thought` is no text")
        calls = [
            _chatml_json_call(call, step, index, tools)
            for index, call in enumerate(answer["calls"])
        ]
        return AgentAction(thought=thought, calls=read.require_call_count(calls))

    def grammar(
        self, tools: Sequence[ToolSpec], answer_tokens: int = 1024
    ) -> Mapping[str, Any] | None:
        """See `Dialect.grammar`."""
        return answer_schema(tools, answer_tokens)


def _chatml_json_call(call: Any, step: int, index: int, tools: Mapping[str, ToolSpec]) -> ToolCall:
    if not isinstance(call, dict):
        raise read.UnreadableAnswer("a call is no object")
    return read.build_call(call.get("name"), call.get("arguments", {}), step, index, tools)


_HERMES_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class HermesDialect(read.FamilyDialect):
    """ChatML with `<tool_call>` blocks."""

    name = "hermes"
    stop_tokens: tuple[str, ...] = ("<|im_end|>",)
    answer_tokens: tuple[str, ...] = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    form = '<tool_call>\n{"name": "tool", "arguments": {}}\n</tool_call>'

    opening = "<|im_start|>assistant\n"
    """What opens an answer; families that switch reasoning add to it."""

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """See `Dialect.head`."""
        listed = read.tool_signatures(tools) if short else read.tool_schemas(tools)
        return [
            template_piece("<|im_start|>system\n"),
            content_piece(f"{system}\n\n# Tools\n\nThe tools and their arguments:\n"),
            template_piece("<tools>\n"),
            content_piece(listed),
            template_piece("\n</tools>\n\n"),
            content_piece(
                "Write a short thought, then each call as a JSON object in its own block:\n"
            ),
            template_piece(
                '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
                "</tool_call><|im_end|>\n<|im_start|>user\n"
            ),
            content_piece(task),
            template_piece(f"<|im_end|>\n{self.opening}"),
        ]

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """See `Dialect.question`."""
        return chatml_prompt(system, text, self.opening)

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """See `Dialect.observation`: blocks, then the tail, in one user message."""
        closing = "" if stop in (None, "<|im_end|>") else "<|im_end|>"
        pieces = [template_piece(f"{closing}\n<|im_start|>user")]
        for result in results:
            pieces += [
                template_piece("\n<tool_response>\n"),
                content_piece(result.text),
                template_piece("\n</tool_response>"),
            ]
        if tail:
            pieces += [template_piece("\n"), content_piece(tail)]
        return [*pieces, template_piece(f"<|im_end|>\n{self.opening}")]

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`."""
        pieces = [content_piece(thought)] if thought else []
        for call in calls:
            pieces += [
                template_piece("\n<tool_call>\n" if pieces else "<tool_call>\n"),
                content_piece(read.compact_json({"name": call.name, "arguments": call.arguments})),
                template_piece("\n</tool_call>"),
            ]
        return [*pieces, template_piece("<|im_end|>")]

    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `FamilyDialect.read_action`."""
        reasoning, answer = split_reasoning(text)
        blocks = enumerate(tool_call_blocks(answer))
        calls = read.require_call_count([self._call(b, step, i, tools) for i, b in blocks])
        thought = answer.split("<tool_call>", 1)[0].strip()
        return AgentAction(thought="\n".join(filter(None, (reasoning, thought))), calls=calls)

    def _call(self, block: str, step: int, index: int, tools: Mapping[str, ToolSpec]) -> ToolCall:
        call = read.parse_json(block.strip())
        if not isinstance(call, dict):
            raise read.UnreadableAnswer("a <tool_call> holds no object")
        return read.build_call(call.get("name"), call.get("arguments", {}), step, index, tools)


def tool_call_blocks(text: str) -> list[str]:
    """The insides of all `<tool_call>` blocks; raises UnreadableAnswer when one is not closed."""
    blocks: list[str] = _HERMES_CALL.findall(text)
    if len(blocks) != text.count("<tool_call>"):
        raise read.UnreadableAnswer("a <tool_call> is not closed")
    return blocks


def split_reasoning(text: str) -> tuple[str, str]:
    """Reasoning inside `<think>…</think>` at the start, and the rest.

    A block that is not closed is all reasoning: the answer never began.
    """
    body = text.lstrip()
    if body.startswith("<think>"):
        inside, closed, rest = body.removeprefix("<think>").partition("</think>")
    elif "</think>" in text:  # the opening tag stood in the prompt
        inside, closed, rest = text.partition("</think>")
    else:
        return "", text
    return inside.strip(), rest.strip() if closed else ""


class Qwen3Dialect(HermesDialect):
    """Qwen3's ChatML."""

    name = "qwen3"
    stop_tokens: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")

    def __init__(self, reasoning: bool = False) -> None:
        super().__init__(reasoning)
        if not reasoning:
            self.opening = "<|im_start|>assistant\n<think>\n\n</think>\n\n"

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`; with reasoning on an action's thought stands in its block."""
        if not (self._reasoning and thought and calls):
            return super().assistant(thought, calls)
        block = [
            template_piece("<think>\n"),
            content_piece(thought),
            template_piece("\n</think>\n\n"),
        ]
        return [*block, *super().assistant("", calls)]


_GLM45_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_GLM45_FORM = (
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n"
    "<arg_value>{arg-value-1}</arg_value>\n...\n</tool_call>"
)


class Glm45Dialect(read.FamilyDialect):
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
        super().__init__(reasoning)
        self._opening = "<|assistant|>" if reasoning else "<|assistant|>\n<think></think>"
        self._switch = "" if reasoning else "/nothink"

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """See `Dialect.head`."""
        listed = read.tool_signatures(tools) if short else read.tool_schemas(tools)
        return [
            template_piece("[gMASK]<sop><|system|>\n"),
            content_piece("# Tools\n\nThe tools and their arguments:\n"),
            template_piece("<tools>\n"),
            content_piece(listed),
            template_piece("\n</tools>\n\n"),
            content_piece("Write a short thought, then each call in this form:\n"),
            template_piece(f"{_GLM45_FORM}<|system|>\n"),
            content_piece(system),
            template_piece("<|user|>\n"),
            content_piece(task),
            template_piece(f"{self._switch}{self._opening}"),
        ]

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """See `Dialect.question`."""
        return [
            template_piece("[gMASK]<sop><|system|>\n"),
            content_piece(system),
            template_piece("<|user|>\n"),
            content_piece(text),
            template_piece(f"{self._switch}{self._opening}"),
        ]

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """See `Dialect.observation`; the sampled role token opens the message where it can."""
        opened = stop in ("<|observation|>", "<|user|>") or stop is None
        pieces = [] if opened else [template_piece("<|observation|>" if results else "<|user|>")]
        for result in results:
            pieces += [
                template_piece("\n<tool_response>\n"),
                content_piece(result.text),
                template_piece("\n</tool_response>"),
            ]
        if tail:
            pieces += [template_piece("\n"), content_piece(tail)]
        return [*pieces, template_piece(self._opening)]

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`; closed by the role token of the next message."""
        pieces = [template_piece("\n"), content_piece(thought)] if thought else []
        if self._reasoning and thought and calls:  # as its template writes an action's thought
            pieces = [
                template_piece("\n<think>"),
                content_piece(thought),
                template_piece("</think>"),
            ]
        for call in calls:
            pieces += [template_piece("\n<tool_call>"), content_piece(call.name)]
            for key, value in call.arguments.items():
                text = value if isinstance(value, str) else read.compact_json(value)
                pieces += [
                    template_piece("\n<arg_key>"),
                    content_piece(key),
                    template_piece("</arg_key>\n<arg_value>"),
                    content_piece(text),
                    template_piece("</arg_value>"),
                ]
            pieces.append(template_piece("\n</tool_call>"))
        return [*pieces, template_piece("<|observation|>" if calls else "<|user|>")]

    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `FamilyDialect.read_action`."""
        reasoning, answer = split_reasoning(text)
        blocks = enumerate(tool_call_blocks(answer))
        calls = read.require_call_count([_glm45_call(b, step, i, tools) for i, b in blocks])
        thought = answer.split("<tool_call>", 1)[0].strip()
        return AgentAction(thought="\n".join(filter(None, (reasoning, thought))), calls=calls)


def _glm45_call(block: str, step: int, index: int, tools: Mapping[str, ToolSpec]) -> ToolCall:
    name = block.split("<arg_key>", 1)[0].strip()
    properties = tools[name].parameters.get("properties", {}) if name in tools else {}
    arguments = {
        key.strip(): _glm45_argument(value, properties.get(key.strip(), {}))
        for key, value in _GLM45_ARGUMENT.findall(block)
    }
    return read.build_call(name, arguments, step, index, tools)


def _glm45_argument(text: str, schema: Mapping[str, Any]) -> Any:
    """An argument as its schema says: text stays as written, everything else is JSON."""
    if schema.get("type") == "string":
        return text
    try:
        return read.parse_json(text.strip())
    except read.UnreadableAnswer:
        return text  # the environment says what type it wants


DialectFactory = Callable[[bool], Dialect]
"""What an entry point of the group `houston.dialects` names: makes the dialect for models that may
write reasoning tokens, or may not. Raises ConfigurationError."""


def choose_dialect(name: str, reasoning: bool = False) -> Dialect:
    """The dialect called `name`, from the entry points of the group `houston.dialects`.

    reasoning: whether the model may write reasoning tokens, where the family has a switch. A name
    that starts with `planner-` means a planner of the family (`planner_dialect`). Raises
    ConfigurationError that lists the known names, or says why this one cannot be used.
    """
    if name.startswith(PLANNER_PREFIX):
        return planner_dialect(choose_dialect(name.removeprefix(PLANNER_PREFIX), reasoning))
    return _dialect_factory(name)(reasoning)


@lru_cache(maxsize=64)
def _dialect_factory(name: str) -> DialectFactory:
    factory: DialectFactory = plugins.load_plugin(plugins.DIALECT_GROUP, name, "dialect")
    return factory
