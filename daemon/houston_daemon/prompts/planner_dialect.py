"""How a planner writes in any model family: one JSON object with thought, action and its input.

    {"thought": "…", "action": "search", "action_input": "…"}

The family's own markup stands around it; tools are told as actions of one line each. An action is a
tool, and its input the argument that it requires, else its first, so that calls, results and
journal are those of every other agent. Families that write one short call anyway (`words`,
`chatml-calls`) stay as they are: there the name is the action and what follows it the input. What
an action may be at a step is decided by the agent (`agent.flow`), not here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts import dialect_protocol as read
from houston_daemon.prompts.answer_grammar import action_schema
from houston_daemon.prompts.dialect_protocol import (
    AgentAction,
    Dialect,
    PromptPiece,
    PromptToolResult,
)
from houston_shared.records import ToolCall

PLANNER_PREFIX = "planner-"
"""What a planner's dialect is called before the name of its family."""
_ONE_CALL_DIALECTS = ("words", "chatml-calls")


def planner_dialect(family: Dialect) -> Dialect:
    """The dialect in which a planner of this model family writes."""
    if family.name in _ONE_CALL_DIALECTS or family.name.startswith(PLANNER_PREFIX):
        return family
    return PlannerDialect(family)


class PlannerDialect(read.FamilyDialect):
    """See `dialect_protocol.Dialect`."""

    form = '{"thought": "…", "action": "…", "action_input": "…"}'

    def __init__(self, family: Dialect) -> None:
        self._family = family
        self.name = f"{PLANNER_PREFIX}{family.name}"
        self.stop_tokens = family.stop_tokens
        self.answer_tokens = family.answer_tokens
        self.markup = family.markup

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """See `Dialect.head`; actions always stand as one line each."""
        actions = "\n".join(_action_line(tool) for tool in tools)
        text = (
            f"{system}\n\n# Actions\n{actions}\n\n# Answer\n"
            f"Each answer is one JSON object and nothing else:\n{self.form}"
        )
        return self._family.question(text, task)

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """See `Dialect.question`."""
        return self._family.question(system, text)

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """See `Dialect.observation`: one message of plain text."""
        text = "\n".join(part for part in (*(result.text for result in results), tail) if part)
        return self._family.observation((), text, stop)

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`: the first call; without calls the thought as plain text."""
        return self._family.assistant(written_action(thought, calls[0]) if calls else thought, ())

    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `FamilyDialect.read_action`; an action that is none of `tools` is none."""
        reasoning, body = _split_reasoning(text)
        answer = read.parse_json(read.strip_code_fence(body))
        if not isinstance(answer, dict):
            raise read.UnreadableAnswer("it is no object")
        thought, action = answer.get("thought", ""), answer.get("action")
        if not isinstance(thought, str):
            raise read.UnreadableAnswer("`thought` is no text")
        if not isinstance(action, str) or action not in tools:
            raise read.UnreadableAnswer(f"`action` is none of {', '.join(tools)}")
        arguments = _arguments(answer.get("action_input", ""), tools[action])
        call = read.build_call(action, arguments, step, 0, tools)
        return AgentAction(thought="\n".join(filter(None, (reasoning, thought))), calls=(call,))

    def grammar(
        self, tools: Sequence[ToolSpec], answer_tokens: int = 1024
    ) -> Mapping[str, Any] | None:
        """See `Dialect.grammar`."""
        return action_schema([tool.name for tool in tools], answer_tokens)


def written_action(thought: str, call: ToolCall) -> str:
    """A decision as the planner writes it."""
    values = list(call.arguments.values())
    value = call.arguments if len(values) > 1 else next(iter(values), "")
    value = value if isinstance(value, str) else read.compact_json(value)
    written = {"thought": thought, "action": call.name, "action_input": value}
    return read.compact_json(written)


def _arguments(value: Any, tool: ToolSpec) -> dict[str, Any]:
    """The input as the argument that the tool wants; none for a tool that takes none, and an object
    of arguments, written as text, for one that needs several."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise read.UnreadableAnswer("`action_input` is no text")
    if len(tool.parameters.get("required", ())) > 1:
        arguments = read.parse_json(str(value))
        if not isinstance(arguments, dict):
            raise read.UnreadableAnswer("`action_input` is no object of arguments")
        return arguments
    name, schema = input_argument(tool)
    text, is_required = str(value), bool(tool.parameters.get("required"))
    is_left_out = not (text.strip() or is_required or _may_be_text(schema))
    return {} if is_left_out or not name else {name: _typed_input(text, schema)}


def input_argument(tool: ToolSpec) -> tuple[str, Mapping[str, Any]]:
    """Name and schema of the argument that holds the input: the required one, otherwise the first;
    an empty name if the tool takes none."""
    properties = tool.parameters.get("properties", {})
    name = next(iter((*tool.parameters.get("required", ()), *properties)), "")
    return name, properties.get(name, {})


def _typed_input(text: str, schema: Mapping[str, Any]) -> Any:
    """The input as its schema says: as written where that may be text, else the JSON that it is."""
    if _may_be_text(schema):
        return text
    try:
        return read.parse_json(text.strip())
    except read.UnreadableAnswer:
        return text  # the environment says what type it wants


def _may_be_text(schema: Mapping[str, Any]) -> bool:
    choices = schema.get("anyOf", [schema])
    return any("string" in choice.get("type", "string") for choice in choices)


def _split_reasoning(text: str) -> tuple[str, str]:
    """Reasoning up to `</think>`, and the rest; the opening tag may stand in the prompt."""
    inside, closed, rest = text.partition("</think>")
    return (inside.replace("<think>", "").strip(), rest) if closed else ("", text)


def _action_line(tool: ToolSpec) -> str:
    description = tool.description.split("\n")[0]
    if len(tool.parameters.get("required", ())) > 1:
        names = ", ".join(tool.parameters.get("properties", {}))
        return f"- {tool.name}: {description} Input: a JSON object with {names}."
    hint = input_argument(tool)[1].get("description", "")
    return f"- {tool.name}: {description}" + (f" Input: {hint}" if hint else "")
