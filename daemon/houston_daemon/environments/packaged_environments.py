"""The packaged kinds of environments, as pyproject.toml registers them.

A kind is cheap to load: commands and the supervisor ask it about tasks. The environment itself is
imported only when it is needed, since workers must start fast and stay small.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from houston_daemon.environments.environment_registry import EnvironmentKind


def _imported_when_called(place: str) -> Callable[[Any], Any]:
    """A function of one argument, `MODULE:NAME` below this package."""
    module, _, name = place.partition(":")

    def call(argument: Any) -> Any:
        return getattr(import_module(f"houston_daemon.environments.{module}"), name)(argument)

    return call


WORKSTATION = EnvironmentKind(
    make=_imported_when_called("workstation.workstation_environment:build_environment"),
    check=_imported_when_called("workstation.workstation_environment:check_task"),
    catalog=_imported_when_called("workstation.workstation_environment:catalog"),
    workspace=True,
    sandbox=True,
)
PYTHON = EnvironmentKind(
    make=_imported_when_called("python.python_environment:build_environment"),
    check=_imported_when_called("python.python_environment:check_task"),
    catalog=_imported_when_called("python.python_environment:catalog"),
    scores=lambda task: bool(task.questions.file),
    secret_score=True,
    sandbox=True,
)
SEARCH_QA = EnvironmentKind(
    make=_imported_when_called("questions.search_qa_environment:build_environment"),
    check=_imported_when_called("questions.search_qa_environment:check_task"),
    catalog=_imported_when_called("questions.search_qa_environment:catalog"),
    scores=lambda task: True,
    secret_score=True,
)
RESEARCH = EnvironmentKind(
    make=_imported_when_called("questions.research_environment:build_environment"),
    check=_imported_when_called("questions.research_environment:check_task"),
    catalog=_imported_when_called("questions.research_environment:catalog"),
    scores=lambda task: bool(task.questions.file),
    secret_score=True,
    sandbox=True,
)
SCIENCEWORLD = EnvironmentKind(
    make=_imported_when_called("simulation.scienceworld_environment:build_environment"),
    check=_imported_when_called("simulation.scienceworld_environment:check_task"),
    catalog=_imported_when_called("simulation.simulation_environment:catalog"),
    scores=lambda task: True,
    secret_score=True,
)
TEXTWORLD = EnvironmentKind(
    make=_imported_when_called("simulation.textworld_environment:build_environment"),
    check=_imported_when_called("simulation.textworld_environment:check_task"),
    catalog=_imported_when_called("simulation.simulation_environment:catalog"),
    scores=lambda task: True,
    secret_score=True,
)
WORD_WORLD = EnvironmentKind(
    make=_imported_when_called("word_world:build_environment"),
    check=_imported_when_called("word_world:check_task"),
    catalog=_imported_when_called("word_world:catalog"),
    scores=lambda task: True,
    secret_score=True,
    shares_worker=True,
)
SMALL_WORKSTATION = EnvironmentKind(
    make=_imported_when_called("small_workstation:build_environment"),
    check=_imported_when_called("small_workstation:check_task"),
    catalog=_imported_when_called("small_workstation:catalog"),
    scores=lambda task: True,
    secret_score=True,
    shares_worker=True,
)
HTTP = EnvironmentKind(
    make=_imported_when_called("http.http_environment:build_environment"),
    check=_imported_when_called("http.http_environment:check_task"),
    scores=lambda task: task.http.score,
)
MCP = EnvironmentKind(
    make=_imported_when_called("mcp.mcp_environment:build_environment"),
    check=_imported_when_called("mcp.mcp_actions:check_task"),
    sandbox=True,
)
OPENENV = EnvironmentKind(
    make=_imported_when_called("openenv.openenv_environment:build_environment"),
    check=_imported_when_called("openenv.openenv_environment:check_task"),
    scores=lambda task: task.openenv.rewards != "none",
)
VERIFIERS = EnvironmentKind(
    make=_imported_when_called("verifiers.verifiers_environment:build_environment"),
    check=_imported_when_called("verifiers.verifiers_environment:check_task"),
    scores=lambda task: True,
    secret_score=True,
)
REASONING_GYM = EnvironmentKind(
    make=_imported_when_called("questions.reasoning_gym_environment:build_environment"),
    check=_imported_when_called("questions.reasoning_gym_environment:check_task"),
    catalog=_imported_when_called("questions.reasoning_gym_environment:catalog"),
    scores=lambda task: True,
    secret_score=True,
    sandbox=True,
)
