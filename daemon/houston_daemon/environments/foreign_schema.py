"""Anybody's JSON schema of a tool's arguments: bounded for guided decoding, and checked.

A schema from outside may be anything: recursive, endless, or none. What cannot be used is left out.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from houston_daemon.environments.observation_boundary import one_line

JSON_TEXT = "application/json"
_DEPTH = 6
_LONGEST = 8_000
"""Characters of a string that names no length."""
_NUMBER = 1_000_000_000
_MOST = {"items": 50, "options": 8, "words": 100, "properties": 60, "values": 1_000}
"""`values` of one tool in all: types that name each other can grow past any memory."""
_WORD = 200


@dataclass(slots=True)
class _RootSchema:
    """The schema that references point into, and how many values may still be described."""

    schema: Mapping[str, Any]
    left: int = _MOST["values"]


def bounded_schema(schema: Any) -> dict[str, Any]:
    """The schema of an arguments object (`type: object`), safe and bounded."""
    whole = _RootSchema(schema if isinstance(schema, Mapping) else {})
    made = _object(_resolved(whole.schema, whole), whole, 0)
    return made or {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def _any(schema: Any, whole: _RootSchema, depth: int) -> dict[str, Any]:
    """One value's schema."""
    found = _resolved(schema, whole)
    whole.left -= 1
    if depth > _DEPTH or whole.left < 0 or not found:
        made: dict[str, Any] = _json_text()
    elif "const" in found or "enum" in found:
        made = _words(found.get("enum", [found.get("const")]))
    elif options := _options(found):
        made = _one_of([_any(one, whole, depth + 1) for one in options[: _MOST["options"]]])
    else:
        made = _typed(found, whole, depth)
    if text := one_line(found.get("description")):
        made["description"] = f"{text} (JSON text)" if _is_json(made) else text
    default = found.get("default")
    if default == "" or _is_number(default):
        made["default"] = default
    return made


def _typed(found: Mapping[str, Any], whole: _RootSchema, depth: int) -> dict[str, Any]:
    match found.get("type", "object" if "properties" in found else None):
        case "string":
            return _text(found)
        case "integer":
            return {"type": "integer", **_range(found, 1)}
        case "number":
            return {"type": "number", **_range(found, 0)}
        case "boolean" | "null" as kind:
            return {"type": kind}
        case "array":
            items = _any(found.get("items", {}), whole, depth + 1)
            most = min(_whole(found.get("maxItems"), _MOST["items"]), _MOST["items"])
            least = min(_whole(found.get("minItems"), 0), most)
            limits = {"maxItems": most} | ({"minItems": least} if least else {})
            return {"type": "array", "items": items, **limits}
        case "object":
            return _object(found, whole, depth) or _json_text()
        case _:
            return _json_text()


def _object(found: Mapping[str, Any], whole: _RootSchema, depth: int) -> dict[str, Any] | None:
    """An object with named members; None for a map of any keys."""
    members = found.get("properties")
    if not isinstance(members, Mapping) or not members:
        return None
    names = [name for name in members if _is_name(name)][: _MOST["properties"]]
    required = found.get("required")
    needed = [name for name in required if name in names] if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": {name: _any(members[name], whole, depth + 1) for name in names},
        "required": needed,
        "additionalProperties": False,
    }


def _resolved(schema: Any, whole: _RootSchema) -> dict[str, Any]:
    """A schema with references followed and `allOf` joined; empty for any value."""
    found = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(_DEPTH):
        target = found.pop("$ref", None)
        if target is not None:
            found = {**_at(whole.schema, target), **found}
        parts = found.pop("allOf", None)
        for part in parts if isinstance(parts, list) else []:
            found = {**(part if isinstance(part, Mapping) else {}), **found}
        if "$ref" not in found and "allOf" not in found:
            return found
    return {}


def _at(whole: Mapping[str, Any], target: Any) -> Mapping[str, Any]:
    place: Any = whole
    if not isinstance(target, str) or not target.startswith("#/"):
        return {}
    for key in target[2:].split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, Mapping) else None
    return place if isinstance(place, Mapping) else {}


def _options(found: Mapping[str, Any]) -> list[Any]:
    for key in ("anyOf", "oneOf"):
        if isinstance(found.get(key), list) and found[key]:
            return list(found[key])
    kinds = found.get("type")
    return [{**found, "type": kind} for kind in kinds] if isinstance(kinds, list) else []


def _one_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    return options[0] if len(options) == 1 else {"anyOf": options}


def _words(values: Any) -> dict[str, Any]:
    """Plain values to choose from; others cannot be shown as words."""
    if not isinstance(values, list):
        return _json_text()
    plain = [one for one in values if one is None or isinstance(one, str) or _is_number(one)]
    long = [one for one in plain if isinstance(one, str) and one_line(one, _WORD) != one]
    if not plain or len(plain) != len(values) or len(plain) > _MOST["words"] or long:
        return _json_text()
    return {"enum": plain}


def _text(found: Mapping[str, Any]) -> dict[str, Any]:
    most = min(_whole(found.get("maxLength"), _LONGEST), _LONGEST)
    least = min(_whole(found.get("minLength"), 0), most)
    return {"type": "string", "maxLength": most} | ({"minLength": least} if least else {})


def _range(found: Mapping[str, Any], step: int) -> dict[str, Any]:
    """Bounds; an exclusive one is a step further for integers and taken as it is for others."""
    low = _bound(found, "minimum", "exclusiveMinimum", step)
    high = _bound(found, "maximum", "exclusiveMaximum", -step)
    low = min(-_NUMBER, -_NUMBER if high is None else high) if low is None else low
    return {"minimum": low, "maximum": max(low, _NUMBER if high is None else high)}


def _bound(found: Mapping[str, Any], key: str, exclusive: str, step: int) -> float | None:
    for name, add in ((key, 0), (exclusive, step)):
        value = found.get(name)
        if _is_number(value) and not isinstance(value, bool):
            return value + add  # type: ignore[operator]
    return None


def _is_number(value: Any) -> bool:
    """Whether it is a number, or a truth value, that the journal can hold."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < 2**62


def _whole(value: Any, otherwise: int) -> int:
    sound = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if sound else otherwise


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 64 and one_line(name, 64) == name


def _json_text() -> dict[str, Any]:
    return {"type": "string", "maxLength": _LONGEST, "contentMediaType": JSON_TEXT}


def _is_json(schema: Mapping[str, Any]) -> bool:
    return schema.get("contentMediaType") == JSON_TEXT


_KINDS = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def schema_violation(value: Any, schema: Mapping[str, Any], where: str = "") -> str:
    """What is wrong with a value, naming the argument; empty when nothing is."""
    if "anyOf" in schema:
        found = [schema_violation(value, one, where) for one in schema["anyOf"]]
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


def decoded_json_text(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value with JSON text in its place as what it says. Raises ValueError."""
    if "anyOf" in schema:
        fitting = (one for one in schema["anyOf"] if not schema_violation(value, one))
        return decoded_json_text(value, next(fitting, {}))
    if schema.get("contentMediaType") == JSON_TEXT and isinstance(value, str):
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        members = schema.get("properties", {})
        return {name: decoded_json_text(one, members.get(name, {})) for name, one in value.items()}
    if isinstance(value, list):
        return [decoded_json_text(one, schema.get("items", {})) for one in value]
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
    problems = (
        schema_violation(one, known[name], _below(where, name)) for name, one in value.items()
    )
    return next(filter(None, problems), "")


def _items(value: list[Any], schema: Mapping[str, Any], where: str) -> str:
    least, most = schema.get("minItems", 0), schema["maxItems"]
    if not least <= len(value) <= most:
        return f"{_named(where)} must have {least} to {most} items"
    problems = (
        schema_violation(one, schema["items"], f"{where}[{at}]") for at, one in enumerate(value)
    )
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
