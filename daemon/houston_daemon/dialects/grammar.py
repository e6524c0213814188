"""JSON schema of a guided answer, bounded so that a small model cannot run out of its tokens.

Every string, integer and list is bounded (an unbounded one runs off into repetition), keys come in
a fixed order, nothing else is allowed. The bounds are a share of the answer's tokens. A short
answer is reckoned at one character a token, as digits are written, so that it always ends in time;
longer ones at two or three, as words are.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.environments.protocol import ToolSpec

_FRAME = 48
"""Tokens for braces, keys and the tool's name."""
_NUMBER = 1_000_000_000
_DROPPED = {"description", "default", "title", "examples", "$schema", "contentMediaType"}


def answer_schema(tools: Sequence[ToolSpec], answer_tokens: int) -> dict[str, Any]:
    """Schema of `{"thought": …, "calls": [{"name": …, "arguments": {…}}]}`."""
    characters = _characters(answer_tokens)
    calls = 1 if answer_tokens < 256 else 2 if answer_tokens < 512 else 4
    return _closed(
        {
            "thought": {"type": "string", "maxLength": min(1000, characters // 3)},
            "calls": {
                "type": "array",
                "minItems": 1,
                "maxItems": calls,
                "items": {"anyOf": [_call(tool, characters * 2 // 3) for tool in tools]},
            },
        }
    )


def text_schema(keys: Sequence[str], answer_tokens: int) -> dict[str, Any]:
    """Schema of an object with one bounded, non-empty string for each of `keys`."""
    longest = max(40, _characters(answer_tokens) // len(keys))
    each = {"type": "string", "minLength": 1, "maxLength": longest}
    return _closed(dict.fromkeys(keys, each))


def _characters(answer_tokens: int) -> int:
    """Characters that strings may have together in an answer of so many tokens."""
    a_token = 1 if answer_tokens <= 256 else 2 if answer_tokens < 512 else 3
    return max(48, answer_tokens - _FRAME) * a_token


def _closed(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def _call(tool: ToolSpec, characters: int) -> dict[str, Any]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    strings = sum(1 for schema in properties.values() if schema.get("type") == "string") or 1
    bounded = {key: _bounded(schema, characters // strings) for key, schema in properties.items()}
    arguments = _closed(bounded, tool.parameters.get("required", ()))
    return _closed({"name": {"const": tool.name}, "arguments": arguments})


def _bounded(schema: Mapping[str, Any], characters: int) -> dict[str, Any]:
    """One argument's schema with the bounds it lacks; a tighter bound of its own stays.

    Numbers are written as integers: a fraction's digits cannot be bounded.
    """
    bounded = {key: value for key, value in schema.items() if key not in _DROPPED}
    kind = schema.get("type")
    if "anyOf" in schema:
        bounded["anyOf"] = [_bounded(option, characters) for option in schema["anyOf"]]
    elif kind == "string" and "enum" not in schema:
        bounded["maxLength"] = min(schema.get("maxLength", characters), max(8, characters))
    elif kind in ("integer", "number"):
        low, high = schema.get("minimum", -_NUMBER), schema.get("maximum", _NUMBER)
        bounded |= {"type": "integer", "minimum": math.ceil(low), "maximum": math.floor(high)}
    elif kind == "array":
        bounded.setdefault("maxItems", 8)
        bounded["items"] = _bounded(schema.get("items", {"type": "string"}), characters // 8)
    elif kind == "object":
        members = schema.get("properties", {})
        share = characters // (len(members) or 1)
        each = {key: _bounded(member, share) for key, member in members.items()}
        bounded = _closed(each, schema.get("required", ()))
    return bounded
