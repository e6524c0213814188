"""Environments are found by name, and a worker imports the one that it has."""

import json
import subprocess
import sys

import pytest

from houston_daemon.environments.environment_registry import kind
from houston_shared import plugins
from houston_shared.errors import ConfigurationError

OWN = (
    "workstation",
    "search_qa",
    "python",
    "research",
    "scienceworld",
    "textworld",
    "small_workstation",
    "word_world",
    "http",
    "mcp",
    "null",
)
TABLES = {
    "search_qa": (
        "search=TaskSearchSettings(corpus='c.jsonl'), questions=QuestionSettings(file='q.jsonl')"
    ),
    "http": "http=HttpSimulatorSettings(url='http://127.0.0.1:9')",
}
MADE = """
import json, sys
from houston_daemon.agent import rollout_worker
from houston_daemon.environments.environment_registry import make_environment
from houston_shared.records import RolloutSpec, TaskRecord
from houston_shared.task import *
record = TaskRecord(name="t", folder="/", definition="", instructions="")
spec = RolloutSpec(rollout="r", task=record, engine="", engine_settings={}, host_root="/tmp/none")
before = set(sys.modules)
make_environment(spec, Task(name="t", environment=NAME, TABLES))
print(json.dumps(sorted(sys.modules)))
"""


def test_our_own_are_registered() -> None:
    assert set(OWN) <= set(plugins.plugin_names(plugins.ENVIRONMENT_GROUP))


@pytest.mark.parametrize("name", ["workstation", "search_qa", "python", "http", "mcp", "null"])
def test_a_worker_imports_its_environment_and_no_other(name: str) -> None:
    code = MADE.replace("NAME", repr(name)).replace("TABLES", TABLES.get(name, ""))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    there = "houston_daemon.environments"
    parts = (one.split(".") for one in loaded if one.startswith(f"{there}."))
    assert {part[2] for part in parts} & set(OWN) <= {name}
    heavy = {"torch", "transformers", "numpy", "sympy", "scienceworld", "textworld"}
    assert not loaded & (heavy if name == "mcp" else heavy | {"mcp"})


def test_a_name_that_is_none_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="no environment 'workstatoin'") as problem:
        kind("workstatoin")
    assert all(name in problem.value.cause for name in OWN)
