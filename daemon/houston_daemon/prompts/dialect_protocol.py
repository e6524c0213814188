"""What every dialect (one model family's way of writing) offers, and what their parsers share.

Holds the `Dialect` protocol, the prompt pieces it renders, the action it parses, and the base class
of the model families' dialects; then how a call is built, how names of tools and arguments are
checked, and how tools appear in a prompt. The environment checks types and ranges of arguments. The
dialects themselves are in `model_dialects`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_shared.records import ToolCall
from houston_shared.wire import encode_message


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """A stretch of prompt text."""

    text: str
    template: bool
    """Whether special tokens in `text` are meant (the dialect's own markup). In content they are
    ordinary letters, so that a file holding `<|im_end|>` cannot end a turn."""


@dataclass(frozen=True, slots=True)
class AgentAction:
    """What a model decided: the parsed form of one policy sample."""

    thought: str
    calls: tuple[ToolCall, ...]
    malformed: str = ""
    """Why the text is no action; empty when it is one. `thought` then holds the whole text."""


@dataclass(frozen=True, slots=True)
class PromptToolResult:
    """One result as it goes into the prompt."""

    call_id: str
    name: str
    text: str


class Dialect(Protocol):
    """One model family's way of writing."""

    name: str
    stop_tokens: tuple[str, ...]
    """Special tokens that end an assistant turn; the first one closes a turn that has none."""
    answer_tokens: tuple[str, ...]
    """Tokens of the family's own that an answer may hold before its stop token. Any other special
    token in an answer, or one of a tool's result, is a turn that the model forged."""
    markup: tuple[str, ...]
    """Tokens that its template writes, each one token in the tokenizers of the family: others are
    refused. In an answer those that are not its own are a forged turn, special or not. Empty where
    a tokenizer has to have the first stop token only."""
    form: str
    """One line that shows a model the form of an answer, for an answer that could not be read."""

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """System prompt, tools and task, up to and including the opening of the first answer.

        short: tools as one line each instead of their JSON schemas.
        """
        ...

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """A system prompt and one message without tools, up to the opening of the answer: for
        samples that are not actions (the judge's)."""
        ...

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """Everything between the sampled text and the content of the next answer.

        tail: clock, budgets and the rendered guidance; it ends the newest message.
        stop: the stop token that was sampled; empty when the answer was cut and its turn is still
        open; None when the answer ended in the family template's own way.
        """
        ...

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """An answer rendered with its closing token, where the sampled ids are not used: a
        stripped thought, a summary, an export. Follows an opening, precedes `observation`."""
        ...

    def parse(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """The action in a sampled text (without its stop token).

        Call ids are `<step>.<index>`. An unknown tool or wrong argument names set the call's
        `error`; a text without a readable call is `malformed`. Never raises.
        """
        ...

    def grammar(
        self, tools: Sequence[ToolSpec], answer_tokens: int = 1024
    ) -> Mapping[str, Any] | None:
        """JSON schema of a whole answer, with strings, integers and the number of calls bounded
        so that a usual answer fits into `answer_tokens`; None: unguided only."""
        ...


class FamilyDialect(ABC):
    """What most dialects have in common: no tokens of their own and no grammar; an answer without a
    readable action is malformed."""

    answer_tokens: tuple[str, ...] = ()
    markup: tuple[str, ...] = ()

    def __init__(self, reasoning: bool = False) -> None:
        """reasoning: as for `choose_dialect`; most families have no switch for it."""
        self._reasoning = reasoning

    def parse(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `Dialect.parse`."""
        try:
            return self.read_action(text, step, tools)
        except UnreadableAnswer as problem:
            return AgentAction(thought=text, calls=(), malformed=str(problem))

    @abstractmethod
    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """The same; raises UnreadableAnswer for a text that is no action."""

    def grammar(
        self, tools: Sequence[ToolSpec], answer_tokens: int = 1024
    ) -> Mapping[str, Any] | None:
        """None: the form is not JSON, and models of these families know it by training."""
        return None


MAX_CALLS = 8
"""Most calls of one answer; a text with more is malformed."""
MAX_NESTING = 100
"""Most levels of lists and objects in one another that a call's arguments have."""


class UnreadableAnswer(Exception):
    """The text is not an action; the message says why, in words that a model understands."""


def build_call(
    name: Any, arguments: Any, step: int, index: int, tools: Mapping[str, ToolSpec]
) -> ToolCall:
    """One call; `error` says which name is unknown, missing or too many.

    Raises UnreadableAnswer when `name` is no text or `arguments` no object.
    """
    if not isinstance(name, str) or not name:
        raise UnreadableAnswer("a call has no `name`")
    if isinstance(arguments, str):  # some models write the object as a JSON string
        arguments = parse_json(arguments or "{}")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise UnreadableAnswer(f"`arguments` of {name} is no object")
    _require_storable(name, arguments)
    error = _name_error(name, arguments, tools)
    return ToolCall(id=f"{step}.{index}", name=name, arguments=arguments, error=error)


def parse_json(text: str) -> Any:
    """A JSON value with nothing after it; raises UnreadableAnswer."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        reason = problem.msg if isinstance(problem, json.JSONDecodeError) else str(problem)
        raise UnreadableAnswer(f"it is no JSON ({reason})") from problem


def strip_code_fence(text: str) -> str:
    """The text without a Markdown fence around it, which chat models like to add."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1].removesuffix("```")
    return text


def _require_storable(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise UnreadableAnswer for what no message can carry (numbers past 64 bits, surrogates), and
    for values in one another so deep that not every reader has the stack for them."""
    try:
        encode_message((name, arguments))
    except (OverflowError, UnicodeEncodeError, RecursionError) as problem:
        raise UnreadableAnswer(f"an argument cannot be stored ({problem})") from problem
    level: list[Any] = [arguments]
    for _ in range(MAX_NESTING):
        level = [
            member
            for value in level
            for member in (value.values() if isinstance(value, dict) else value)
            if isinstance(member, dict | list)
        ]
    if level:
        raise UnreadableAnswer(f"an argument of {name} is nested more than {MAX_NESTING} levels")


def require_call_count(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls of one answer; raises UnreadableAnswer when there are none or too many."""
    if not calls:
        raise UnreadableAnswer("it has no call")
    if len(calls) > MAX_CALLS:
        raise UnreadableAnswer(f"it has {len(calls)} calls, at most {MAX_CALLS} are taken")
    return tuple(calls)


def _name_error(name: str, arguments: Mapping[str, Any], tools: Mapping[str, ToolSpec]) -> str:
    """Why the tool or an argument's name is wrong; empty when all are right."""
    if name not in tools:
        return f"There is no tool {name!r}; the tools are: {', '.join(sorted(tools))}."
    schema = tools[name].parameters
    properties = schema.get("properties", {})
    if unknown := sorted(set(arguments) - set(properties)):
        return (
            f"{name} has no argument {unknown[0]!r}; it takes: {', '.join(properties) or 'none'}."
        )
    missing = [key for key in schema.get("required", ()) if key not in arguments]
    return f"{name} needs the argument {missing[0]!r}." if missing else ""


def compact_json(value: Any) -> str:
    """JSON on one line, letters not escaped."""
    return json.dumps(value, ensure_ascii=False)


def tool_schemas(tools: Sequence[ToolSpec]) -> str:
    """Tools as JSON schemas in OpenAI's form, one a line."""
    return "\n".join(compact_json(tool.openai()) for tool in tools)


def tool_signatures(tools: Sequence[ToolSpec]) -> str:
    """Tools as one short line each: name, arguments with types, first sentence."""
    return "\n".join(_tool_signature(tool) for tool in tools)


def _tool_signature(tool: ToolSpec) -> str:
    required = set(tool.parameters.get("required", ()))
    arguments = ", ".join(
        f"{key}{'' if key in required else '?'}: {_schema_type(schema)}"
        for key, schema in tool.parameters.get("properties", {}).items()
    )
    sentence = tool.description.split(". ")[0].split("\n")[0].rstrip(".")
    return f"{tool.name}({arguments}): {sentence}"


def _schema_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    names = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
    kind = schema.get("type", "any")
    return names.get(kind, str(kind)) if isinstance(kind, str) else "|".join(map(str, kind))
