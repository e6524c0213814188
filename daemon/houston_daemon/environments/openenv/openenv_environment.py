"""The openenv environment: a server of OpenEnv as a rollout's world; what a task must name.

It is an environment of `http` whose simulator is a session of OpenEnv.
"""

import importlib.util

from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.http.connected_world import ConnectedWorld
from houston_daemon.environments.http.http_environment import (
    SimulatorEnvironment,
    bearer_key,
    check_address,
    check_no_evaluator,
)
from houston_daemon.environments.openenv.openenv_session import OpenEnvSession
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask

INSTALL = "pip install 'houston-agents[openenv]'"


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for a task that could not run, and where the package is missing."""
    check_address(task, task.task.openenv.url)
    check_no_evaluator(task)
    if importlib.util.find_spec("websockets") is None:
        raise ConfigurationError(
            f"{task.file}: openenv needs the Python package websockets, which is not installed.",
            "No rollout can run.",
            INSTALL,
        )


def build_environment(setup: EnvironmentSetup) -> SimulatorEnvironment:
    """The environment; nobody is asked before `open`."""
    settings = setup.task.openenv
    session = OpenEnvSession(settings, bearer_key(settings.api_key_env), setup.spec.rollout)
    return SimulatorEnvironment(
        setup.spec,
        setup.task,
        setup.characters,
        ConnectedWorld(session, settings.replayable),
        scores=settings.rewards != "none",
        checked=settings.replayable,
    )
