"""The suite `science-games`: short games of ScienceWorld, and their solutions.

Agents may teleport, so that a game takes two to four turns: go to the things, look, focus on the
right one, perhaps move it into a box. Which animal lives longest must be learned by experience. The
splits are ScienceWorld's own: a variation of one is in no other. Solutions are read from the
simulator, which needs Java; no model sees them.
"""

import random
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from houston_daemon.environments.simulation.scienceworld_environment import variations
from houston_shared.task_tables import WorldSplit

GAMES = ("lifespan-longest-lived", "lifespan-shortest-lived", "find-non-living-thing")
"""Tasks of ScienceWorld, short ones."""
SIMPLIFICATIONS = "easy"
WORLD_SPLITS: dict[str, WorldSplit] = {"train": "train", "validation": "dev", "test": "test"}
_LISTED = re.compile(r"^\t(?:an? |the )?([^.,(\n]+)", re.MULTILINE)
_NO_THINGS = {"agent", "substance", "ground"}
_ANY_ANIMAL = {"baby", "egg"}
"""Words of a name that say nothing of the kind."""


@dataclass(frozen=True, slots=True)
class ScienceGame:
    """One game."""

    task: str
    variation: int


def science_game(split: str, index: int) -> ScienceGame:
    """Game number `index` of a split; after the last one, the first follows again."""
    games = _games(split)
    return games[index % len(games)]


def count_games(split: str) -> int:
    """How many games a split has."""
    return len(_games(split))


@cache
def _games(split: str) -> tuple[ScienceGame, ...]:
    """All of a split, in an order of their own."""
    drawn = [
        ScienceGame(task, variation)
        for task in GAMES
        for variation in variations(task, WORLD_SPLITS[split])
    ]
    random.Random(f"science-games/1/{split}").shuffle(drawn)
    return tuple(drawn)


@dataclass(frozen=True, slots=True)
class ScienceWay:
    """How a game is played."""

    solution: tuple[str, ...]
    """Commands that solve it."""
    others: tuple[str, ...]
    """Things at the place that are not asked for."""


class ScienceWays:
    """Ways through games, from one simulator that stays open: it takes two seconds to start."""

    def __init__(self) -> None:
        from houston_daemon.environments.simulation.scienceworld_simulator import connect

        self._random, self._world = connect()

    def way(self, game: ScienceGame) -> ScienceWay:
        """The way through a game, in the world as rollouts have it: what lies where is drawn."""
        seed = zlib.crc32(f"{game.task}:{game.variation}".encode())
        self._random.setSeed(seed)
        self._world.load(game.task, game.variation, SIMPLIFICATIONS, True)
        gold = [str(command) for command in self._world.getGoldActionSequence()]
        self._random.setSeed(seed)
        self._world.reset()
        solution = tuple(_short_way(gold))
        self._world.step(solution[0])
        observation = str(self._world.step("look around"))
        right = {word for command in solution for word in command.split()[2:]} - _ANY_ANIMAL
        others = tuple(
            thing
            for thing in map(str.strip, _LISTED.findall(observation))
            if not set(thing.split()) & (right | _NO_THINGS) and not thing.endswith(" box")
        )
        return ScienceWay(solution, others)


def _short_way(gold: list[str]) -> Iterator[str]:
    """The simulator's own way without doors and detours: to the last room, a look, what is done."""
    rooms = [command.removeprefix("go to ") for command in gold if command.startswith("go to ")]
    if rooms:
        yield f"teleport to {rooms[-1]}"
    yield "look around"
    for command in gold:
        if command.startswith(("focus on ", "move ")):
            yield command.replace("baby baby ", "baby ")
