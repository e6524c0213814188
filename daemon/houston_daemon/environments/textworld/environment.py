"""TextWorld for one rollout: which game its seed gives, and what an agent may not do in it."""

import re
import shutil
from pathlib import Path
from typing import Any

from houston_daemon.environments.simulation import catalog
from houston_daemon.environments.textworld import suite
from houston_shared.task import LoadedTask, Task

_OWN = frozenset({
    "restart", "restore", "save", "quit", "q", "undo", "script", "transcript", "recording",
    "replay", "verify",
})  # fmt: skip
"""Commands to the interpreter, not to the world; some would write a file."""
_KEYS = re.compile(r"[\\\x00-\x1f\x7f]")
"""A backslash begins a hot key of the interpreter (undo, new game, recording), and hangs it like
the others here do."""
_CLAUSE = re.compile(r"[.,;]|\bthen\b")
"""Between commands on one line."""


class TextWorldSimulator:
    """See `simulation.environment.Simulator`."""

    module = "houston_daemon.environments.textworld.simulator"

    def missing(self) -> str:
        """What this machine lacks: the package."""
        return catalog.missing("textworld")

    def settings(self, task: Task, seed: int, folder: Path) -> dict[str, Any]:
        """The generator's settings and seeds."""
        return suite.chosen(task.textworld, seed, folder)

    def inherit(self, parent: Path, folder: Path) -> dict[str, Any]:
        """The game as it was made."""
        own = suite.game_folder(folder)
        if suite.game_folder(parent).is_dir():
            shutil.copytree(suite.game_folder(parent), own, dirs_exist_ok=True)
        return {"folder": str(own)}

    def refused(self, action: str) -> str:
        """What would leave the game or take back what was done in it."""
        if _KEYS.search(action):
            return "An action has no backslash and no control character in it."
        words = (clause.split() for clause in _CLAUSE.split(action.lower()))
        if own := [first for first, *_ in filter(None, words) if first in _OWN]:
            return f"{own[0]} is not offered: a rollout is one game. Go on from here, or finish."
        return ""


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would stop every rollout of the task at once."""
    catalog.catalog(task.task)
    suite.check(task.task.textworld, str(task.file))
    catalog.check_installed(task, TextWorldSimulator().missing())
