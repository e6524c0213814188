"""JSON schemas of tools from outside: bounded for guided decoding, and used to check arguments.

Such a schema may be recursive, endless, or invalid. Parts that cannot be used are left out.
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
    root = _RootSchema(schema if isinstance(schema, Mapping) else {})
    bounded = _object(_resolve_references(root.schema, root), root, 0)
    return bounded or {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def _any(schema: Any, root: _RootSchema, depth: int) -> dict[str, Any]:
    """One value's schema."""
    resolved = _resolve_references(schema, root)
    root.left -= 1
    if depth > _DEPTH or root.left < 0 or not resolved:
        bounded: dict[str, Any] = _json_text()
    elif "const" in resolved or "enum" in resolved:
        bounded = _words(resolved.get("enum", [resolved.get("const")]))
    elif options := _options(resolved):
        bounded = _one_of([_any(option, root, depth + 1) for option in options[: _MOST["options"]]])
    else:
        bounded = _typed(resolved, root, depth)
    if text := one_line(resolved.get("description")):
        is_json = bounded.get("contentMediaType") == JSON_TEXT
        bounded["description"] = f"{text} (JSON text)" if is_json else text
    default = resolved.get("default")
    if default == "" or _is_number(default):
        bounded["default"] = default
    return bounded


def _typed(resolved: Mapping[str, Any], root: _RootSchema, depth: int) -> dict[str, Any]:
    match resolved.get("type", "object" if "properties" in resolved else None):
        case "string":
            return _text(resolved)
        case "integer":
            return {"type": "integer", **_range(resolved, 1)}
        case "number":
            return {"type": "number", **_range(resolved, 0)}
        case "boolean" | "null" as kind:
            return {"type": kind}
        case "array":
            items = _any(resolved.get("items", {}), root, depth + 1)
            most = min(_non_negative_int(resolved.get("maxItems"), _MOST["items"]), _MOST["items"])
            least = min(_non_negative_int(resolved.get("minItems"), 0), most)
            limits = {"maxItems": most} | ({"minItems": least} if least else {})
            return {"type": "array", "items": items, **limits}
        case "object":
            return _object(resolved, root, depth) or _json_text()
        case _:
            return _json_text()


def _object(resolved: Mapping[str, Any], root: _RootSchema, depth: int) -> dict[str, Any] | None:
    """An object with named members; None for a map of any keys."""
    members = resolved.get("properties")
    if not isinstance(members, Mapping) or not members:
        return None
    names = [name for name in members if _is_name(name)][: _MOST["properties"]]
    required = resolved.get("required")
    needed = [name for name in required if name in names] if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": {name: _any(members[name], root, depth + 1) for name in names},
        "required": needed,
        "additionalProperties": False,
    }


def _resolve_references(schema: Any, root: _RootSchema) -> dict[str, Any]:
    """A schema with references followed and `allOf` joined; empty for any value."""
    resolved = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(_DEPTH):
        target = resolved.pop("$ref", None)
        if target is not None:
            resolved = {**_resolve_pointer(root.schema, target), **resolved}
        parts = resolved.pop("allOf", None)
        for part in parts if isinstance(parts, list) else []:
            resolved = {**(part if isinstance(part, Mapping) else {}), **resolved}
        if "$ref" not in resolved and "allOf" not in resolved:
            return resolved
    return {}


def _resolve_pointer(root: Mapping[str, Any], target: Any) -> Mapping[str, Any]:
    place: Any = root
    if not isinstance(target, str) or not target.startswith("#/"):
        return {}
    for key in target[2:].split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, Mapping) else None
    return place if isinstance(place, Mapping) else {}


def _options(resolved: Mapping[str, Any]) -> list[Any]:
    for key in ("anyOf", "oneOf"):
        if isinstance(resolved.get(key), list) and resolved[key]:
            return list(resolved[key])
    kinds = resolved.get("type")
    return [{**resolved, "type": kind} for kind in kinds] if isinstance(kinds, list) else []


def _one_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    return options[0] if len(options) == 1 else {"anyOf": options}


def _words(values: Any) -> dict[str, Any]:
    """Plain values to choose from; others cannot be shown as words."""
    if not isinstance(values, list):
        return _json_text()
    plain = [
        value for value in values if value is None or isinstance(value, str) or _is_number(value)
    ]
    long = [value for value in plain if isinstance(value, str) and one_line(value, _WORD) != value]
    if not plain or len(plain) != len(values) or len(plain) > _MOST["words"] or long:
        return _json_text()
    return {"enum": plain}


def _text(resolved: Mapping[str, Any]) -> dict[str, Any]:
    most = min(_non_negative_int(resolved.get("maxLength"), _LONGEST), _LONGEST)
    least = min(_non_negative_int(resolved.get("minLength"), 0), most)
    return {"type": "string", "maxLength": most} | ({"minLength": least} if least else {})


def _range(resolved: Mapping[str, Any], step: int) -> dict[str, Any]:
    """Bounds; an exclusive one is a step further for integers and taken as it is for others."""
    low = _bound(resolved, "minimum", "exclusiveMinimum", step)
    high = _bound(resolved, "maximum", "exclusiveMaximum", -step)
    low = min(-_NUMBER, -_NUMBER if high is None else high) if low is None else low
    return {"minimum": low, "maximum": max(low, _NUMBER if high is None else high)}


def _bound(resolved: Mapping[str, Any], key: str, exclusive: str, step: int) -> float | None:
    for name, add in ((key, 0), (exclusive, step)):
        value = resolved.get(name)
        if _is_number(value) and not isinstance(value, bool):
            return value + add  # type: ignore[operator]
    return None


def _is_number(value: Any) -> bool:
    """Whether it is a number, or a truth value, that the journal can hold."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < 2**62


def _non_negative_int(value: Any, default: int) -> int:
    sound = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if sound else default


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 64 and one_line(name, 64) == name


def _json_text() -> dict[str, Any]:
    return {"type": "string", "maxLength": _LONGEST, "contentMediaType": JSON_TEXT}


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
        violations = [schema_violation(value, option, where) for option in schema["anyOf"]]
        return "" if "" in violations else violations[0]
    if "enum" in schema:
        allowed_value = any(
            type(option) is type(value) and option == value for option in schema["enum"]
        )
        allowed = ", ".join(json.dumps(option, ensure_ascii=False) for option in schema["enum"])
        return "" if allowed_value else f"{_describe_path(where)} must be one of {allowed}"
    kind = schema.get("type")
    if not _has_type(value, kind):
        return f"{_describe_path(where)} must be of type {kind}"
    if kind == "object":
        return _members(value, schema, where)
    if kind == "array":
        return _items(value, schema, where)
    return _bounds(value, schema, where)


def decoded_json_text(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value with JSON text in its place as what it says. Raises ValueError."""
    if "anyOf" in schema:
        fitting = (item for item in schema["anyOf"] if not schema_violation(value, item))
        return decoded_json_text(value, next(fitting, {}))
    if schema.get("contentMediaType") == JSON_TEXT and isinstance(value, str):
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        members = schema.get("properties", {})
        return {
            name: decoded_json_text(item, members.get(name, {})) for name, item in value.items()
        }
    if isinstance(value, list):
        return [decoded_json_text(item, schema.get("items", {})) for item in value]
    return value


def _has_type(value: Any, kind: Any) -> bool:
    if kind in ("integer", "number") and isinstance(value, bool):
        return False
    expected = _KINDS.get(kind)
    return expected is None or isinstance(value, expected)  # type: ignore[arg-type]


def _members(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> str:
    properties = schema["properties"]
    for name in value:
        if name not in properties:
            names = ", ".join(properties) or "none"
            return f"{_describe_path(where)} has no member `{name[:60]}`; there are: {names}"
    for name in schema["required"]:
        if name not in value:
            return f"{_describe_path(where)} needs the member `{name}`"
    problems = (
        schema_violation(member, properties[name], _join_path(where, name))
        for name, member in value.items()
    )
    return next(filter(None, problems), "")


def _items(value: list[Any], schema: Mapping[str, Any], where: str) -> str:
    least, most = schema.get("minItems", 0), schema["maxItems"]
    if not least <= len(value) <= most:
        return f"{_describe_path(where)} must have {least} to {most} items"
    problems = (
        schema_violation(item, schema["items"], f"{where}[{at}]") for at, item in enumerate(value)
    )
    return next(filter(None, problems), "")


def _bounds(value: Any, schema: Mapping[str, Any], where: str) -> str:
    if isinstance(value, str):
        least, most = schema.get("minLength", 0), schema["maxLength"]
        if not least <= len(value) <= most:
            return f"{_describe_path(where)} must have {least} to {most} characters"
        if schema.get("contentMediaType") == JSON_TEXT:
            return _json(value, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema["minimum"], schema["maximum"]
        if not low <= value <= high:
            return f"{_describe_path(where)} must be from {low:g} to {high:g}"
    return ""


def _json(value: str, where: str) -> str:
    """What it says must be what can be sent on: no half characters, no number without end."""
    try:
        msgspec.json.encode(msgspec.json.decode(value))
    except (ValueError, RecursionError):
        return f"{_describe_path(where)} must be JSON text"
    return ""


def _join_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _describe_path(where: str) -> str:
    return f"argument `{where}`" if where else "the arguments object"
