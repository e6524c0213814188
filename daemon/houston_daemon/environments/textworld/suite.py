"""Which game a rollout gets: the generator's settings from the task file, seeds from the rollout's.

The simulator makes the game and decides by its content which split it belongs to; this module knows
no generator.
"""

from pathlib import Path
from typing import Any

from houston_shared.errors import ConfigurationError
from houston_shared.task_worlds import TextWorld

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


def check(settings: TextWorld, where: str) -> None:
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


def chosen(settings: TextWorld, seed: int, folder: Path) -> dict[str, Any]:
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
