"""The grammar of a guided answer is bounded everywhere, and what it allows the parser reads."""

from collections.abc import Iterator
from typing import Any

import pytest

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.environments.tool_arguments import tool
from houston_daemon.environments.workstation_actions import (
    COMMAND_ACTIONS,
    FILE_ACTIONS,
    SYSTEM_ACTIONS,
)
from houston_daemon.prompts.answer_grammar import answer_schema, text_schema
from houston_daemon.prompts.model_dialects import choose_dialect

TOOLS: list[ToolSpec] = [
    tool(action) for action in (*COMMAND_ACTIONS, *FILE_ACTIONS, *SYSTEM_ACTIONS)
]


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema."""
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from parts(value)


@pytest.mark.parametrize("tokens", [96, 160, 400, 1024, 8192])
def test_everything_is_bounded(tokens: int) -> None:
    for part in parts(answer_schema(TOOLS, tokens)):
        match part.get("type"):
            case "string":
                assert "maxLength" in part or "enum" in part
            case "integer":
                assert part["minimum"] <= part["maximum"]
            case "array":
                assert "maxItems" in part
            case "object":
                assert part["additionalProperties"] is False
            case "number":
                raise AssertionError("the digits of a fraction have no bound")


@pytest.mark.parametrize("tokens", [96, 160, 400, 1024])
def test_the_longest_answer_fits_at_two_characters_a_token(tokens: int) -> None:
    for spec in TOOLS:
        schema = answer_schema([spec], tokens)["properties"]
        arguments = schema["calls"]["items"]["anyOf"][0]["properties"]["arguments"]["properties"]
        longest = schema["thought"]["maxLength"]
        longest += sum(part.get("maxLength", 0) for part in arguments.values())
        assert longest <= 3 * tokens


def test_a_tighter_bound_of_the_tool_stays() -> None:
    spec = ToolSpec(
        "t",
        "",
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "maxLength": 9},
                "b": {"type": "number", "minimum": 0.5, "maximum": 2.5},
                "c": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
        },
    )
    call = answer_schema([spec], 1024)["properties"]["calls"]["items"]["anyOf"][0]
    arguments = call["properties"]["arguments"]["properties"]
    assert arguments["a"]["maxLength"] == 9
    assert arguments["b"] == {"type": "integer", "minimum": 1, "maximum": 2}
    assert "maximum" in arguments["c"]["anyOf"][0]


def test_keys_come_in_a_fixed_order_and_names_are_constants() -> None:
    schema = choose_dialect("chatml-json").grammar(TOOLS, 256)
    assert schema is not None
    assert schema["required"] == ["thought", "calls"]
    options = schema["properties"]["calls"]["items"]["anyOf"]
    assert [one["properties"]["name"]["const"] for one in options] == [t.name for t in TOOLS]


def test_the_families_with_a_form_of_their_own_are_not_guided() -> None:
    for name in ("hermes", "qwen3", "glm45"):
        assert choose_dialect(name).grammar(TOOLS, 256) is None


def test_a_summary_is_bounded_too() -> None:
    schema = text_schema(("a", "b"), 300)
    assert schema["required"] == ["a", "b"]
    assert all(part["maxLength"] <= 600 for part in schema["properties"].values())
