"""The single source of a tool: a struct of its arguments gives schema, help and validation.

An action is a frozen msgspec struct. Its docstring is the tool's description (one line); `Meta` on
a field gives bounds and help. Knows nothing of what an action does.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, get_args, get_type_hints

import msgspec

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from houston_shared.task import Task


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every action's arguments."""

    name: ClassVar[str]
    """The tool's name."""
    family: ClassVar[str]
    """The family that documentation lists it under."""
    writes: ClassVar[bool] = True
    """Whether running it can change files of the workspace; so is taken what does not say."""
    idempotent: ClassVar[bool] = False
    """Whether running it twice is as running it once, so that a lost request may be sent again."""


Bounds = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Tool name → argument → keywords of JSON schema that a task sets tighter (`maximum`)."""


def tool(
    action: type[Arguments], tighter: Mapping[str, Mapping[str, Any]] | None = None
) -> ToolSpec:
    """The tool as models see it; `tighter` replaces schema keywords of single arguments."""
    _, components = msgspec.json.schema_components([action])
    schema = components[action.__name__]
    properties = {
        name: {**described, **(tighter or {}).get(name, {})}
        for name, described in schema.get("properties", {}).items()
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }
    return ToolSpec(action.name, (action.__doc__ or "").strip(), parameters, action.family)


def chosen_actions(
    task: Task, actions: Iterable[type[Arguments]], owner: str, needed: Sequence[str] = ()
) -> dict[str, type[Arguments]]:
    """The actions that a task chooses in `tools`, by name; all if it chooses none.

    Raises ConfigurationError for a name that `owner` does not have, and if a needed one is left
    out.
    """
    known_actions = {action.name: action for action in actions}
    for name in task.tools:
        if name not in known_actions:
            raise ConfigurationError(
                f"Task {task.name}: `tools` names {name!r}; {owner} has {', '.join(known_actions)}."
            )
    for name in needed:
        if task.tools and name not in task.tools:
            raise ConfigurationError(f"Task {task.name}: `tools` leaves out {name!r}.")
    return {n: action for n, action in known_actions.items() if not task.tools or n in task.tools}


class Catalog:
    """The actions that an environment offers, by name."""

    def __init__(
        self,
        actions: Mapping[str, type[Arguments]],
        bounds: Bounds | None = None,
        unoffered: Mapping[str, type[Arguments]] | None = None,
    ) -> None:
        """unoffered: actions that the loop may call and the agent is not offered."""
        self._actions = {**actions, **(unoffered or {})}
        self._bounds = bounds or {}
        self.tools = tuple(tool(a, self._bounds.get(name)) for name, a in actions.items())

    def check(self, call: ToolCall) -> ToolCall:
        """The call with defaults filled in, or with `error` saying what is wrong with it."""
        if call.error:
            return call
        action = self._actions.get(call.name)
        if action is None:
            return msgspec.structs.replace(call, error=self._unknown(call.name))
        try:
            arguments = msgspec.convert(call.arguments, action)
        except msgspec.ValidationError as problem:
            return msgspec.structs.replace(call, error=_explain(str(problem), action))
        filled = msgspec.structs.asdict(arguments)
        error = _no_text(call.name, filled) or self._too_large(call.name, filled)
        return msgspec.structs.replace(call, arguments=filled, error=error)

    def arguments(self, call: ToolCall) -> Arguments:
        """The typed arguments of a call that `check` found sound."""
        return msgspec.convert(call.arguments, self._actions[call.name])

    def _unknown(self, name: str) -> str:
        offered = [tool.name for tool in self.tools]
        near = difflib.get_close_matches(name, offered, n=2)
        hint = f"Did you mean {' or '.join(near)}?" if near else ""
        tool_list = f"The tools are {', '.join(offered)}."
        return f"There is no tool {name[:60]!r}. {hint or tool_list}"

    def _too_large(self, name: str, filled: Mapping[str, Any]) -> str:
        """What a tighter bound of the task refuses."""
        for argument, keywords in self._bounds.get(name, {}).items():
            if "maximum" in keywords and filled[argument] > keywords["maximum"]:
                return (
                    f"{name}: `{argument}` may be at most {keywords['maximum']} in this task, "
                    f"got {filled[argument]}."
                )
        return ""


def _no_text(name: str, filled: Mapping[str, Any]) -> str:
    """JSON can spell half a surrogate pair, which no file, terminal or database can hold."""
    for argument, value in filled.items():
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            return f"{name}: `{argument}` holds half a surrogate pair, which is no character."
    return ""


def _choices(action: type[Arguments], name: str) -> str:
    """What an argument of a few words may be, for a sentence."""
    words = get_args(get_type_hints(action)[name])
    return f"; it may be {' or '.join(map(repr, words))}"


def _explain(problem: str, action: type[Arguments]) -> str:
    """msgspec's sentence as one that names tool, argument and what is allowed."""
    problem_text, _, place = problem.partition(" - at `$.")
    argument_names = ", ".join(action.__struct_fields__) or "none"
    if "unknown field" in problem_text:
        wrong = problem_text.split("`")[1][:60]
        return f"{action.name} has no argument `{wrong}`; its arguments: {argument_names}."
    if "missing required field" in problem_text:
        needed = problem_text.split("`")[1]
        return f"{action.name} needs the argument `{needed}`; its arguments: {argument_names}."
    if place:
        name = place.rstrip("`")
        choices = _choices(action, name) if problem_text.startswith("Invalid enum value") else ""
        sentence = problem_text[0].lower() + problem_text[1:]
        return f"{action.name}: argument `{name}`: {sentence}{choices}."
    return f"{action.name}: the arguments must be one object with: {argument_names}."
