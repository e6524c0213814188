"""Which actions a simulated world offers for a task; whether what it needs is installed."""

import importlib.util
import shutil

from houston_daemon.environments.arguments import Arguments, Catalog
from houston_daemon.environments.simulation.actions import SIMULATION_ACTIONS
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task

SCORE = "eval"
"""What the loop calls at the end of a rollout whose budget is spent; no tool of the agent."""
_NEEDED = ("act", "finish")


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError for names that are none, or that are missing."""
    actions: dict[str, type[Arguments]] = {one.name: one for one in SIMULATION_ACTIONS}
    for name in task.tools:
        if name not in actions:
            raise ConfigurationError(
                f"Task {task.name}: `tools` names {name!r}; {task.environment} has "
                f"{', '.join(actions)}."
            )
    for name in _NEEDED:
        if task.tools and name not in task.tools:
            raise ConfigurationError(f"Task {task.name}: `tools` leaves out {name!r}.")
    return Catalog({n: one for n, one in actions.items() if not task.tools or n in task.tools})


def missing(package: str, program: str = "") -> str:
    """What this machine lacks to run the simulator and how to get it; empty when it lacks nothing.

    package: what is imported; program: what must be on PATH.
    """
    if importlib.util.find_spec(package) is None:
        return f"The Python package {package} is not installed: pip install 'houston-agents[envs]'."
    if program and shutil.which(program) is None:
        return (
            f"{program.capitalize()} is not installed, and {package} runs in it: install it, for "
            "example Debian's default-jre-headless."
        )
    return ""


def check_installed(task: LoadedTask, lacking: str) -> None:
    """Raise ConfigurationError when something is lacking."""
    if lacking:
        raise ConfigurationError(
            f"The environment {task.task.environment} of {task.file} cannot run here. {lacking}"
        )
