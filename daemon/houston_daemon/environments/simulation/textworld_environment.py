"""TextWorld (Côté et al. 2018, arXiv:1806.11532): which game a rollout gets, what it may not do.

Settings of the generator come from the task file, seeds from the rollout's.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.simulation import simulation_environment
from houston_daemon.environments.simulation.simulation_environment import Simulation
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task
from houston_shared.task_tables import TextWorldSettings

CANDIDATES = 256
"""Game seeds that belong to one number; the first whose game is of the split is taken."""
_SEEDS = 1 << 31
"""The generator takes no larger ones."""
_LEVELS = {"treasure_hunter": 30, "coin_collector": 300}
_COOKING_ROOMS = (1, 6, 9, 12)
_KEYS = {
    "house": ("rooms", "objects", "quest_length", "goal"),
    "treasure_hunter": ("level",),
    "coin_collector": ("level",),
    "cooking": ("rooms", "ingredients"),
}


def check_settings(settings: TextWorldSettings, where: str) -> None:
    """Raise ConfigurationError for settings that the generator would refuse."""
    most = _LEVELS.get(settings.game)
    if most and settings.level > most:
        raise ConfigurationError(
            f"{where}: `textworld.level` is {settings.level}; {settings.game} has 1 to {most}."
        )
    if settings.game == "cooking" and settings.rooms not in _COOKING_ROOMS:
        raise ConfigurationError(
            f"{where}: `textworld.rooms` is {settings.rooms}; cooking has 1, 6, 9 or 12."
        )


def choose_game(settings: TextWorldSettings, seed: int, folder: Path) -> dict[str, Any]:
    """What the simulator is asked for.

    folder: where it keeps the game. `repeat` consecutive seeds share a game.
    """
    number = seed // settings.repeat
    first = number * CANDIDATES % _SEEDS
    seeds = [first, CANDIDATES] if settings.seed < 0 else [settings.seed, 1]
    made_of = {key: getattr(settings, key) for key in _KEYS[settings.game]}
    return {
        "game": settings.game,
        **made_of,
        "split": settings.split if settings.seed < 0 else "",
        "seeds": seeds,
        "folder": str(game_folder(folder)),
    }


def game_folder(folder: Path) -> Path:
    """Where a rollout keeps its game."""
    return folder / "textworld"


_OWN = frozenset({
    "restart", "restore", "save", "quit", "q", "undo", "script", "transcript", "recording",
    "replay", "verify",
})  # fmt: skip
"""Commands to the interpreter, not to the world; some would write a file."""
_HOT_KEYS = re.compile(r"[\\\x00-\x1f\x7f]")
"""A backslash begins a hot key of the interpreter (undo, new game, recording), and hangs it like
the others here do."""
_CLAUSE = re.compile(r"[.,;]|\bthen\b")
"""Between commands on one line."""


class TextWorldSimulator:
    """See `simulation_environment.Simulator`."""

    module = "houston_daemon.environments.simulation.textworld_simulator"

    def missing(self) -> str:
        """What this machine lacks: the package."""
        return simulation_environment.missing("textworld")

    def settings(self, task: Task, seed: int, folder: Path) -> dict[str, Any]:
        """The generator's settings and seeds."""
        return choose_game(task.textworld, seed, folder)

    def inherit(self, parent: Path, folder: Path) -> dict[str, Any]:
        """The game as it was made."""
        own = game_folder(folder)
        if game_folder(parent).is_dir():
            shutil.copytree(game_folder(parent), own, dirs_exist_ok=True)
        return {"folder": str(own)}

    def refused(self, action: str) -> str:
        """What would leave the game or take back what was done in it."""
        if _HOT_KEYS.search(action):
            return "An action has no backslash and no control character in it."
        words = (clause.split() for clause in _CLAUSE.split(action.lower()))
        if own := [first for first, *_ in filter(None, words) if first in _OWN]:
            return f"{own[0]} is not offered: a rollout is one game. Go on from here, or finish."
        return ""


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would stop every rollout of the task at once."""
    simulation_environment.catalog(task.task)
    check_settings(task.task.textworld, str(task.file))
    simulation_environment.check_installed(task, TextWorldSimulator().missing())


def build_environment(setup: EnvironmentSetup) -> Simulation:
    """The environment; nothing is touched before `open`."""
    return Simulation(TextWorldSimulator(), setup.spec, setup.task, setup.characters)
