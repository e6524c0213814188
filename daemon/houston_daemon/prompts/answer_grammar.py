"""JSON schema of a guided answer, bounded so that a small model cannot run out of its tokens.

Every string, integer and list is bounded (in an unbounded one, small models repeat themselves
without end), keys have a fixed order, and nothing else is allowed. The bounds are a share of the
answer's tokens: one character a token for a short answer, two or three for longer ones. The engine
enforces the schema; this module only writes it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.environments.environment_protocol import ToolSpec

_FRAME_TOKENS = 48
"""Tokens for braces, keys and the tool's name."""
_MAX_INTEGER = 1_000_000_000
_DROPPED_KEYWORDS = {"description", "default", "title", "examples", "$schema", "contentMediaType"}


def answer_schema(tools: Sequence[ToolSpec], answer_tokens: int) -> dict[str, Any]:
    """Schema of `{"thought": …, "calls": [{"name": …, "arguments": {…}}]}`."""
    characters = _character_budget(answer_tokens)
    calls = 1 if answer_tokens < 256 else 2 if answer_tokens < 512 else 4
    return _closed_object(
        {
            "thought": {"type": "string", "maxLength": min(1000, characters // 3)},
            "calls": {
                "type": "array",
                "minItems": 1,
                "maxItems": calls,
                "items": {"anyOf": [_call_schema(tool, characters * 2 // 3) for tool in tools]},
            },
        }
    )


def action_schema(actions: Sequence[str], answer_tokens: int) -> dict[str, Any]:
    """Schema of `{"thought": …, "action": …, "action_input": …}`, the action one of `actions`."""
    characters = _character_budget(answer_tokens)
    return _closed_object(
        {
            "thought": {"type": "string", "maxLength": min(1000, characters // 3)},
            "action": {"enum": list(actions)},
            "action_input": {"type": "string", "minLength": 1, "maxLength": characters * 2 // 3},
        }
    )


def verdict_schema(answer_tokens: int) -> dict[str, Any]:
    """Schema of `{"answered": …, "reason": …}`."""
    longest = min(300, max(40, _character_budget(answer_tokens)))
    reason = {"type": "string", "maxLength": longest}
    return _closed_object({"answered": {"type": "boolean"}, "reason": reason})


def text_schema(keys: Sequence[str], answer_tokens: int) -> dict[str, Any]:
    """Schema of an object with one bounded, non-empty string for each of `keys`."""
    longest = max(40, _character_budget(answer_tokens) // len(keys))
    text_type = {"type": "string", "minLength": 1, "maxLength": longest}
    return _closed_object(dict.fromkeys(keys, text_type))


def _character_budget(answer_tokens: int) -> int:
    """Characters that strings may have together in an answer of so many tokens."""
    a_token = 1 if answer_tokens <= 256 else 2 if answer_tokens < 512 else 3
    return max(48, answer_tokens - _FRAME_TOKENS) * a_token


def _closed_object(
    properties: Mapping[str, Any], required: Sequence[str] | None = None
) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def _call_schema(tool: ToolSpec, characters: int) -> dict[str, Any]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    strings = sum(1 for schema in properties.values() if schema.get("type") == "string") or 1
    bounded = {
        key: _bounded_schema(schema, characters // strings) for key, schema in properties.items()
    }
    arguments = _closed_object(bounded, tool.parameters.get("required", ()))
    return _closed_object({"name": {"const": tool.name}, "arguments": arguments})


def _bounded_schema(schema: Mapping[str, Any], characters: int) -> dict[str, Any]:
    """One argument's schema with the bounds it lacks; a tighter bound of its own stays.

    Numbers are written as integers: a fraction's digits cannot be bounded.
    """
    bounded = {key: value for key, value in schema.items() if key not in _DROPPED_KEYWORDS}
    kind = schema.get("type")
    if "anyOf" in schema:
        bounded["anyOf"] = [_bounded_schema(option, characters) for option in schema["anyOf"]]
    elif kind == "string" and "enum" not in schema:
        bounded["maxLength"] = min(schema.get("maxLength", characters), max(8, characters))
    elif kind in ("integer", "number"):
        low, high = schema.get("minimum", -_MAX_INTEGER), schema.get("maximum", _MAX_INTEGER)
        bounded |= {"type": "integer", "minimum": math.ceil(low), "maximum": math.floor(high)}
    elif kind == "array":
        bounded.setdefault("maxItems", 8)
        bounded["items"] = _bounded_schema(schema.get("items", {"type": "string"}), characters // 8)
    elif kind == "object":
        members = schema.get("properties", {})
        share = characters // (len(members) or 1)
        bounded_members = {key: _bounded_schema(member, share) for key, member in members.items()}
        bounded = _closed_object(bounded_members, schema.get("required", ()))
    return bounded
