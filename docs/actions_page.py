"""The page docs/actions.md, from the types of the actions; `generate.py` writes it."""

import json
from typing import Any

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.environments.python.python_environment import PYTHON_ACTIONS
from houston_daemon.environments.questions.research_environment import RESEARCH_ACTIONS
from houston_daemon.environments.questions.search_qa_environment import SEARCH_QA_ACTIONS
from houston_daemon.environments.simulation.simulation_environment import SIMULATION_ACTIONS
from houston_daemon.environments.small_workstation import FILE_ACTIONS
from houston_daemon.environments.tool_arguments import tool
from houston_daemon.environments.word_world import WORD_ACTIONS
from houston_daemon.environments.workstation_actions import ACTIONS

_INTRODUCTION = """\
# Actions of the workstation

<!-- written by docs/generate.py -->

Those of the other environments follow at the end.
A task may offer a part of them (`tools`) and sets the longest `sleep` (`[budget] sleep_seconds`).
A call with an unknown, missing or wrong argument is not run: its observation says what is wrong.

Paths are relative to the workspace, or absolute below `/workspace`. Sessions are terminals; a
session is opened by the first command that names it. Where a task has several hosts, command and
file actions also take `host`, one of their names; the first is meant when none is given, and all by
list_sessions and close_all_sessions.
"""
_OTHERS = {
    "search_qa": SEARCH_QA_ACTIONS,
    "python": PYTHON_ACTIONS,
    "research": RESEARCH_ACTIONS,
    "scienceworld and textworld": SIMULATION_ACTIONS,
    "word_world": WORD_ACTIONS,
    "small_workstation": FILE_ACTIONS,
}
_FOREIGN = """\
# Other environments

`http` and `mcp` have the tools that a simulator or the servers describe, with bounds where these
name none, and `finish` (`mcp` also `eval`, where the task has an evaluator). What a grammar cannot
bound, such as a map of any keys, is an argument with JSON text.
"""


def actions_page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, *_families([tool(action) for action in ACTIONS.values()])]
    for name, actions in _OTHERS.items():
        parts += [f"# Actions of {name}\n", *_families([tool(action) for action in actions])]
    parts.append(_FOREIGN)
    return "\n".join(parts)


def _families(tools: list[ToolSpec]) -> list[str]:
    parts = []
    for family in dict.fromkeys(spec.family for spec in tools):
        members = [spec for spec in tools if spec.family == family]
        parts.append(f"## {family.capitalize()} ({len(members)})\n")
        parts += [_entry(spec) for spec in members]
    return parts


def _entry(spec: ToolSpec) -> str:
    lines = [f"### {spec.name}\n", f"{spec.description}\n"]
    properties = spec.parameters["properties"]
    if properties:
        lines += ["| argument | type | default | meaning |", "|---|---|---|---|"]
        required = spec.parameters["required"]
        lines += [_argument(name, about, name in required) for name, about in properties.items()]
        lines.append("")
    return "\n".join(lines)


def _argument(name: str, about: dict[str, Any], required: bool) -> str:
    default = "required" if required else f"`{json.dumps(about['default'])}`"
    return f"| `{name}` | {_kind(about)} | {default} | {about.get('description', '')} |"


def _kind(about: dict[str, Any]) -> str:
    if about["type"] == "integer":
        return f"integer, {about['minimum']} to {about['maximum']}"
    if about["type"] == "string":
        least = about.get("minLength", 0)
        shape = f", `{about['pattern']}`" if "pattern" in about else ""
        return f"text, {least} to {about['maxLength']} characters{shape}"
    return str(about["type"])
