"""Whether arguments keep to a schema that `schema.bounded` made, in a sentence for the agent."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from houston_daemon.environments.foreign.schema import JSON_TEXT

_KINDS = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def trouble(value: Any, schema: Mapping[str, Any], where: str = "") -> str:
    """What is wrong with a value, naming the argument; empty when nothing is."""
    if "anyOf" in schema:
        found = [trouble(value, one, where) for one in schema["anyOf"]]
        return "" if "" in found else found[0]
    if "enum" in schema:
        known = any(type(one) is type(value) and one == value for one in schema["enum"])
        allowed = ", ".join(json.dumps(one, ensure_ascii=False) for one in schema["enum"])
        return "" if known else f"{_named(where)} must be one of {allowed}"
    kind = schema.get("type")
    if not _is(value, kind):
        return f"{_named(where)} must be of type {kind}"
    if kind == "object":
        return _members(value, schema, where)
    if kind == "array":
        return _items(value, schema, where)
    return _bounds(value, schema, where)


def decoded(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value with JSON text in its place as what it says. Raises ValueError."""
    if "anyOf" in schema:
        fitting = (one for one in schema["anyOf"] if not trouble(value, one))
        return decoded(value, next(fitting, {}))
    if schema.get("contentMediaType") == JSON_TEXT and isinstance(value, str):
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        members = schema.get("properties", {})
        return {name: decoded(one, members.get(name, {})) for name, one in value.items()}
    if isinstance(value, list):
        return [decoded(one, schema.get("items", {})) for one in value]
    return value


def _is(value: Any, kind: Any) -> bool:
    if kind in ("integer", "number") and isinstance(value, bool):
        return False
    expected = _KINDS.get(kind)
    return expected is None or isinstance(value, expected)  # type: ignore[arg-type]


def _members(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> str:
    known = schema["properties"]
    for name in value:
        if name not in known:
            there = ", ".join(known) or "none"
            return f"{_named(where)} has no member `{name[:60]}`; there are: {there}"
    for name in schema["required"]:
        if name not in value:
            return f"{_named(where)} needs the member `{name}`"
    problems = (trouble(one, known[name], _below(where, name)) for name, one in value.items())
    return next(filter(None, problems), "")


def _items(value: list[Any], schema: Mapping[str, Any], where: str) -> str:
    least, most = schema.get("minItems", 0), schema["maxItems"]
    if not least <= len(value) <= most:
        return f"{_named(where)} must have {least} to {most} items"
    problems = (trouble(one, schema["items"], f"{where}[{at}]") for at, one in enumerate(value))
    return next(filter(None, problems), "")


def _bounds(value: Any, schema: Mapping[str, Any], where: str) -> str:
    if isinstance(value, str):
        least, most = schema.get("minLength", 0), schema["maxLength"]
        if not least <= len(value) <= most:
            return f"{_named(where)} must have {least} to {most} characters"
        if schema.get("contentMediaType") == JSON_TEXT:
            return _json(value, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema["minimum"], schema["maximum"]
        if not low <= value <= high:
            return f"{_named(where)} must be from {low:g} to {high:g}"
    return ""


def _json(value: str, where: str) -> str:
    """What it says must be what can be sent on: no half characters, no number without end."""
    try:
        msgspec.json.encode(msgspec.json.decode(value))
    except (ValueError, RecursionError):
        return f"{_named(where)} must be JSON text"
    return ""


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _named(where: str) -> str:
    return f"argument `{where}`" if where else "the arguments object"
