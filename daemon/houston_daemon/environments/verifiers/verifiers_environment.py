"""The verifiers environment: an environment of the package of that name as a rollout's world.

It is an environment of `http` whose simulator is an episode of the package.
"""

import os
import subprocess
import sys
from pathlib import Path

from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.http.connected_world import ConnectedWorld
from houston_daemon.environments.http.http_environment import (
    SimulatorEnvironment,
    check_no_evaluator,
)
from houston_daemon.environments.local_host_setup import task_variables
from houston_daemon.environments.verifiers.verifiers_episode import VerifiersEpisode
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task

_LOOK_SECONDS = 60.0


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for a task that could not run, and where the package is missing."""
    check_no_evaluator(task)
    if not task.task.verifiers.taskset:
        raise ConfigurationError(
            f"{task.file}: verifiers needs the id of a taskset, `verifiers.taskset`."
        )
    python = interpreter(task.task, task.folder)
    if not os.access(python, os.X_OK):
        raise ConfigurationError(
            f"{task.file}: `verifiers.python` is {python}, which is no program on this machine."
        )
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('verifiers') is None)"
    try:
        looked = subprocess.run(
            [python, "-P", "-c", look], capture_output=True, timeout=_LOOK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ConfigurationError(
            f"{task.file}: `verifiers.python`, {python}, does not run ({type(problem).__name__})."
        ) from None
    if looked.returncode:
        raise ConfigurationError(
            f"{task.file}: the Python package verifiers is not installed for {python}.",
            "No rollout can run.",
            "python3 -m venv verifiers-venv && verifiers-venv/bin/pip install verifiers; then name"
            " verifiers-venv/bin/python as `verifiers.python`.",
        )


def interpreter(task: Task, folder: Path) -> str:
    """The interpreter that a task names, absolute; the daemon's own where it names none."""
    named = task.verifiers.python
    return str(Path(os.path.abspath(folder / named))) if named else sys.executable  # noqa: PTH100


def build_environment(setup: EnvironmentSetup) -> SimulatorEnvironment:
    """The environment; no process is started before `open`."""
    spec, task = setup.spec, setup.task
    python = interpreter(task, Path(spec.task.folder))
    episode = VerifiersEpisode(task.verifiers, python, spec.rollout, task_variables(task))
    return SimulatorEnvironment(
        spec,
        task,
        setup.characters,
        ConnectedWorld(episode, task.verifiers.replayable),
        scores=True,
        checked=task.verifiers.replayable,
    )
