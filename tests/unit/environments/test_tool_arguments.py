"""Every tool says what it takes, refuses what it does not, and fits a small model's grammar."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from houston_daemon.environments.workstation.workstation_environment import catalog
from houston_daemon.environments.workstation_actions import ACTIONS
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from houston_shared.task import BudgetSettings, Task
from houston_shared.task_tables import EvaluationSettings

CATALOG = catalog(Task(name="t"))


def check(name: str, arguments: dict[str, Any]) -> ToolCall:
    return CATALOG.check(ToolCall(id="1.0", name=name, arguments=arguments))


def test_the_families_of_researchgym_are_complete() -> None:
    families = Counter(tool.family for tool in CATALOG.tools)
    assert families == {
        "command": 12, "file": 11, "parse": 7, "search": 1, "browse": 7, "system": 4,
    }  # fmt: skip


def test_defaults_are_filled_in() -> None:
    call = check("get_session_output", {})
    assert call.error == ""
    assert call.arguments == {
        "session_id": "main", "start_lines": 50, "end_lines": 0, "since_timestamp": 0,
    }  # fmt: skip


def test_what_a_task_keeps_from_the_agent_the_loop_can_still_score() -> None:
    kept = catalog(Task(name="t", tools=("finish",), evaluate=EvaluationSettings(command="true")))
    assert [tool.name for tool in kept.tools] == ["finish"]
    scoring = ToolCall(id="1.0", name="eval", arguments={})
    assert not kept.check(scoring).error
    assert "The tools are finish." in kept.check(ToolCall(id="1.0", name="evl", arguments={})).error
    without = catalog(Task(name="t", tools=("finish",)))
    assert "There is no tool 'eval'" in without.check(scoring).error


def test_a_checked_call_checks_again_to_itself() -> None:
    once = check("run_command", {"command": "ls"})
    assert CATALOG.check(once) == once


BAD = [
    ("fly", {}, "no tool 'fly'"),
    ("open_fil", {}, "Did you mean open_file"),
    ("run_command", {}, "needs the argument `command`"),
    ("run_command", {"command": 7}, "`command`: expected `str`, got `int`"),
    ("run_command", {"command": ""}, "`command`"),
    ("run_command", {"command": "x" * 2_001}, "length <= 2000"),
    ("run_command", {"command": "ls", "http_port": 8123}, "no argument `http_port`"),
    ("run_command", {"command": "ls", "session_id": "../x"}, "`session_id`"),
    ("run_command", {"command": "ls", "session_id": "-x"}, "`session_id`"),
    ("run_command", {"command": "ls", "wait_for_completion": "no"}, "`wait_for_completion`"),
    ("open_file", {"path": "a", "line_number": 0}, "`line_number`: expected `int` >= 1"),
    ("open_file", {"path": "a", "line_number": True}, "got `bool`"),
    ("create_file", {"filename": "a"}, "needs the argument `content`"),
    ("create_file", {"filename": "a", "content": "x" * 8_001}, "`content`"),
    ("create_file", {"filename": "a", "content": "\ud800"}, "surrogate"),
    ("sleep", {"sleep_time": 3_601}, "at most 3600 in this task"),
    ("finish", {"now": True}, "no argument `now`"),
]


@pytest.mark.parametrize(("name", "arguments", "says"), BAD)
def test_a_wrong_call_says_what_is_wrong(name: str, arguments: dict[str, Any], says: str) -> None:
    assert says in check(name, arguments).error


def test_an_error_of_the_dialect_is_kept() -> None:
    call = ToolCall(id="1.0", name="finish", arguments={}, error="the text is no JSON")
    assert CATALOG.check(call).error == "the text is no JSON"


@pytest.mark.parametrize("tool", CATALOG.tools, ids=lambda tool: tool.name)
def test_schemas_are_bounded_objects(tool: Any) -> None:
    """A grammar without bounds lets a small model run on until its tokens are spent."""
    assert tool.parameters["additionalProperties"] is False
    for name, about in tool.parameters["properties"].items():
        if about["type"] == "string":
            assert about["maxLength"] <= 8_000, name
        elif about["type"] == "integer":
            assert about["minimum"] >= 0, name
            assert about["maximum"] >= about["minimum"], name
        else:
            assert about["type"] == "boolean", name
    json.dumps(tool.openai())


def test_the_schema_follows_the_tasks_longest_sleep() -> None:
    tools = {
        tool.name: tool
        for tool in catalog(Task(name="t", budget=BudgetSettings(sleep_seconds=2))).tools
    }
    assert tools["sleep"].parameters["properties"]["sleep_time"]["maximum"] == 2


def test_one_line_a_tool_fits_a_small_window() -> None:
    lines = [
        f"{tool.name}({', '.join(tool.parameters['properties'])}): {tool.description}"
        for tool in CATALOG.tools
    ]
    assert all("\n" not in line for line in lines)
    # 1,000 tokens at 3 characters each: names and short words take more tokens than prose.
    assert len("\n".join(lines)) < 3_000


def test_a_task_may_offer_a_part() -> None:
    some = catalog(Task(name="t", tools=("finish", "think")))
    assert [tool.name for tool in some.tools] == ["think", "finish"]
    call = ToolCall(id="1.0", name="run_command", arguments={"command": "ls"})
    assert "no tool 'run_command'" in some.check(call).error


def test_a_task_that_names_an_unknown_tool_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'fly'"):
        catalog(Task(name="t", tools=("fly",)))


def test_every_action_round_trips_through_json() -> None:
    for action in ACTIONS.values():
        schema = msgspec.json.schema(action)
        assert schema["$defs"][action.__name__]["type"] == "object"
