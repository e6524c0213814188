"""The packaged kinds of environments, as pyproject.toml registers them.

A kind is cheap to load: commands and the supervisor ask it about tasks. An environment is imported
when it is asked for, for workers have to start fast and stay small.
"""

import os

from houston_daemon.environments.environment_registry import EnvironmentKind, EnvironmentSetup
from houston_daemon.environments.protocol import Environment
from houston_daemon.environments.tool_arguments import Catalog
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.task import LoadedTask, Task


def _make_workstation(making: EnvironmentSetup) -> Environment:
    from houston_daemon.environments.workstation.workstation_environment import build_workstation

    return build_workstation(making)


def _check_workstation(task: LoadedTask) -> None:
    from houston_daemon.environments.workstation.workstation_environment import catalog

    catalog(task.task)


def _catalog_workstation(task: Task) -> Catalog:
    from houston_daemon.environments.workstation.workstation_environment import catalog

    return catalog(task)


WORKSTATION = EnvironmentKind(
    make=_make_workstation,
    check=_check_workstation,
    workspace=True,
    sandbox=True,
    catalog=_catalog_workstation,
)


def _make_python(making: EnvironmentSetup) -> Environment:
    from houston_daemon.environments.local_host_setup import local_host
    from houston_daemon.environments.python.python_environment import PythonEnvironment

    leased = tuple(making.gpus.get(LOCAL_HOST, ()))
    host = local_host(making.spec, making.task, making.owner, gpus=leased)
    return PythonEnvironment(making.spec, making.task, host, making.characters)


def _check_python(task: LoadedTask) -> None:
    from houston_daemon.environments.python.python_environment import check_task

    check_task(task)


def _catalog_python(task: Task) -> Catalog:
    from houston_daemon.environments.python.python_environment import catalog

    return catalog(task)


PYTHON = EnvironmentKind(
    make=_make_python,
    check=_check_python,
    scores=lambda task: bool(task.questions.file),
    secret_score=True,
    sandbox=True,
    catalog=_catalog_python,
)


def _make_search_qa(making: EnvironmentSetup) -> Environment:
    from houston_daemon.environments.questions.search_qa_environment import SearchQa

    return SearchQa(making.spec, making.task, making.characters)


def _check_search_qa(task: LoadedTask) -> None:
    from houston_daemon.environments.questions.search_qa_environment import check_task

    check_task(task)


def _catalog_search_qa(task: Task) -> Catalog:
    from houston_daemon.environments.questions.search_qa_environment import catalog

    return catalog(task)


SEARCH_QA = EnvironmentKind(
    make=_make_search_qa,
    check=_check_search_qa,
    scores=lambda task: True,
    secret_score=True,
    catalog=_catalog_search_qa,
)


def _make_scienceworld(making: EnvironmentSetup) -> Environment:
    from houston_daemon.environments.simulation.scienceworld_environment import (
        ScienceWorldSimulator,
    )
    from houston_daemon.environments.simulation.simulation_environment import Simulation

    return Simulation(ScienceWorldSimulator(), making.spec, making.task, making.characters)


def _check_scienceworld(task: LoadedTask) -> None:
    from houston_daemon.environments.simulation.scienceworld_environment import check_task

    check_task(task)


def _catalog_scienceworld(task: Task) -> Catalog:
    from houston_daemon.environments.simulation.simulation_environment import catalog

    return catalog(task)


SCIENCEWORLD = EnvironmentKind(
    make=_make_scienceworld,
    check=_check_scienceworld,
    scores=lambda task: True,
    secret_score=True,
    catalog=_catalog_scienceworld,
)


def _make_textworld(making: EnvironmentSetup) -> Environment:
    from houston_daemon.environments.simulation.simulation_environment import Simulation
    from houston_daemon.environments.simulation.textworld_environment import TextWorldSimulator

    return Simulation(TextWorldSimulator(), making.spec, making.task, making.characters)


def _check_textworld(task: LoadedTask) -> None:
    from houston_daemon.environments.simulation.textworld_environment import check_task

    check_task(task)


def _catalog_textworld(task: Task) -> Catalog:
    from houston_daemon.environments.simulation.simulation_environment import catalog

    return catalog(task)


TEXTWORLD = EnvironmentKind(
    make=_make_textworld,
    check=_check_textworld,
    scores=lambda task: True,
    secret_score=True,
    catalog=_catalog_textworld,
)


def _make_http(making: EnvironmentSetup) -> Environment:
    from houston_daemon.environments.http.http_environment import HttpEnvironment

    variable = making.task.http.api_key_env
    key = os.environ.get(variable, "").strip() if variable else ""  # a file's newline is none
    return HttpEnvironment(making.spec, making.task, making.characters, key)


def _check_http(task: LoadedTask) -> None:
    from houston_daemon.environments.http.http_environment import check_task

    check_task(task)


HTTP = EnvironmentKind(make=_make_http, check=_check_http, scores=lambda task: task.http.score)


def _make_mcp(making: EnvironmentSetup) -> Environment:
    from houston_daemon.environments.mcp.mcp_environment import build_mcp_environment

    return build_mcp_environment(making)


def _check_mcp(task: LoadedTask) -> None:
    from houston_daemon.environments.mcp.mcp_actions import check_task

    check_task(task)


MCP = EnvironmentKind(make=_make_mcp, check=_check_mcp, sandbox=True)
