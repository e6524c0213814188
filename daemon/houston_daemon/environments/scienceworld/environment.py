"""ScienceWorld for one rollout: which world its seed gives, and what an agent may not do in it."""

from pathlib import Path
from typing import Any

from houston_daemon.environments.scienceworld import suite
from houston_daemon.environments.simulation import catalog
from houston_shared.task import LoadedTask, Task

_RESET = "reset task is not offered: a rollout is one attempt. Go on from here, or call finish."


class ScienceWorldSimulator:
    """See `simulation.environment.Simulator`."""

    module = "houston_daemon.environments.scienceworld.simulator"

    def missing(self) -> str:
        """What this machine lacks: the package, or Java."""
        return catalog.missing("scienceworld", "java")

    def settings(self, task: Task, seed: int, folder: Path) -> dict[str, Any]:
        """Task and variation by the seed."""
        return suite.chosen(task.scienceworld, seed)

    def inherit(self, parent: Path, folder: Path) -> dict[str, Any]:
        """Nothing: the world is in the package."""
        return {}

    def refused(self, action: str) -> str:
        """A reset would take back what went wrong."""
        return _RESET if action.lower() == "reset task" else ""


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would stop every rollout of the task at once."""
    catalog.catalog(task.task)
    suite.check(task.task.scienceworld, str(task.file))
    catalog.check_installed(task, ScienceWorldSimulator().missing())
