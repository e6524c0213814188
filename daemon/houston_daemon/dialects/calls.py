"""What every dialect's parser shares: making calls, checking names, showing tools.

Types and ranges of arguments are the environment's to check: here a call only has to name a tool
and its arguments.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.environments.protocol import ToolSpec
from houston_shared.records import Call
from houston_shared.wire import encode

MAXIMUM = 8
"""Most calls of one answer; a text with more is malformed."""


class Unreadable(Exception):
    """The text is no action; the message says why, in words a model can use."""


def make(name: Any, arguments: Any, step: int, index: int, tools: Mapping[str, ToolSpec]) -> Call:
    """One call; `error` says which name is unknown, missing or too many.

    Raises Unreadable when `name` is no text or `arguments` no object.
    """
    if not isinstance(name, str) or not name:
        raise Unreadable("a call has no `name`")
    if isinstance(arguments, str):  # some models write the object as a JSON string
        arguments = read_json(arguments or "{}")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise Unreadable(f"`arguments` of {name} is no object")
    _storable(name, arguments)
    error = _names(name, arguments, tools)
    return Call(id=f"{step}.{index}", name=name, arguments=arguments, error=error)


def read_json(text: str) -> Any:
    """A JSON value with nothing after it; raises Unreadable."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        reason = problem.msg if isinstance(problem, json.JSONDecodeError) else str(problem)
        raise Unreadable(f"it is no JSON ({reason})") from problem


def _storable(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise Unreadable for what no message can carry: numbers past 64 bits, half characters."""
    try:
        encode((name, arguments))
    except (OverflowError, UnicodeEncodeError, RecursionError) as problem:
        raise Unreadable(f"an argument cannot be stored ({problem})") from problem


def limited(calls: Sequence[Call]) -> tuple[Call, ...]:
    """The calls of one answer; raises Unreadable when there are none or too many."""
    if not calls:
        raise Unreadable("it has no call")
    if len(calls) > MAXIMUM:
        raise Unreadable(f"it has {len(calls)} calls, at most {MAXIMUM} are taken")
    return tuple(calls)


def _names(name: str, arguments: Mapping[str, Any], tools: Mapping[str, ToolSpec]) -> str:
    """Why the tool or an argument's name is wrong; empty when all are right."""
    if name not in tools:
        return f"There is no tool {name!r}; the tools are: {', '.join(sorted(tools))}."
    schema = tools[name].parameters
    known = schema.get("properties", {})
    if unknown := sorted(set(arguments) - set(known)):
        return f"{name} has no argument {unknown[0]!r}; it takes: {', '.join(known) or 'none'}."
    missing = [key for key in schema.get("required", ()) if key not in arguments]
    return f"{name} needs the argument {missing[0]!r}." if missing else ""


def compact(value: Any) -> str:
    """JSON on one line, letters as they are."""
    return json.dumps(value, ensure_ascii=False)


def schemas(tools: Sequence[ToolSpec]) -> str:
    """Tools as JSON schemas in OpenAI's form, one a line."""
    return "\n".join(compact(tool.openai()) for tool in tools)


def signatures(tools: Sequence[ToolSpec]) -> str:
    """Tools as one short line each: name, arguments with types, first sentence."""
    return "\n".join(_signature(tool) for tool in tools)


def _signature(tool: ToolSpec) -> str:
    required = set(tool.parameters.get("required", ()))
    arguments = ", ".join(
        f"{key}{'' if key in required else '?'}: {_type(schema)}"
        for key, schema in tool.parameters.get("properties", {}).items()
    )
    sentence = tool.description.split(". ")[0].split("\n")[0].rstrip(".")
    return f"{tool.name}({arguments}): {sentence}"


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    names = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
    kind = schema.get("type", "any")
    return names.get(kind, str(kind)) if isinstance(kind, str) else "|".join(map(str, kind))
