"""The parts of a task file that choose what is asked and which world is given: questions, the
code tool, and the simulators from PyPI.

They are read with the rest of the file (`task`). Nothing here knows a question or makes a world.
"""

from typing import Annotated, Literal

import msgspec

from houston_shared.task_tables import Positive, Seconds
from houston_shared.toml_file import Settings

Split = Literal["train", "test"]


class Questions(Settings, frozen=True):
    """What `search_qa` asks, and `python` where `file` is named."""

    file: str = ""
    """JSON Lines file beside the task file: `question`, `answers`, and perhaps `id` and `split`
    in each line; a line without a split gets one by the hash of its question, a fifth for `test`.
    """
    split: Literal["train", "test", "all"] = "train"
    """Which questions are asked."""
    repeat: Positive = 1
    """How many consecutive seeds get the same question: the size of a group that is compared."""
    id: str = ""
    """Ask this one always; empty to choose by the rollout's seed."""


WorldSplit = Literal["train", "dev", "test"]


class ScienceWorld(Settings, frozen=True):
    """Which worlds `scienceworld` gives to rollouts."""

    tasks: tuple[str, ...] = ()
    """Names of ScienceWorld's tasks, such as `boil`; empty for all 30. They take turns."""
    split: Literal["train", "dev", "test"] = "train"
    """Which variations: ScienceWorld's own split, in which each belongs to one."""
    simplifications: tuple[str, ...] = ()
    """`easy` for all of `teleportAction`, `selfWateringFlowerPots`, `openContainers`, `openDoors`,
    `noElectricalAction` that fit, or some of these."""
    variation: Annotated[int, msgspec.Meta(ge=-1, le=10_000)] = -1
    """Give this one always; -1 to choose by the rollout's seed."""
    repeat: Positive = 1
    """How many consecutive seeds get the same world: the size of a group that is compared."""


class TextWorld(Settings, frozen=True):
    """Which games TextWorld's generator makes for rollouts."""

    game: Literal["house", "treasure_hunter", "coin_collector", "cooking"] = "house"
    """Kind of game: `house` is TextWorld's own maker of quests, the others are its challenges."""
    split: Literal["train", "dev", "test"] = "train"
    """Which games: each belongs to one split by its structure, half of them to `train`, a quarter
    each to `dev` and `test`."""
    rooms: Annotated[int, msgspec.Meta(ge=1, le=50)] = 6
    """Rooms of `house` and `cooking` (there 1, 6, 9 or 12)."""
    objects: Annotated[int, msgspec.Meta(ge=1, le=100)] = 12
    """Objects of `house`."""
    quest_length: Annotated[int, msgspec.Meta(ge=1, le=20)] = 4
    """Commands that the quest of `house` needs."""
    goal: Literal["detailed", "brief"] = "brief"
    """How `house` tells its quest: every command, or the last one only."""
    level: Annotated[int, msgspec.Meta(ge=1, le=300)] = 5
    """Difficulty of `treasure_hunter` (1 to 30) and `coin_collector` (1 to 300)."""
    ingredients: Annotated[int, msgspec.Meta(ge=1, le=3)] = 2
    """Ingredients that `cooking` asks for, to be found, cut and cooked."""
    seed: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)] = -1
    """Seed of the generator, for one game always, of whatever split; -1 to choose by the rollout's
    seed."""
    repeat: Positive = 1
    """How many consecutive seeds get the same game: the size of a group that is compared."""


class Python(Settings, frozen=True):
    """The code tool of `python`."""

    seconds: Seconds = 10.0
    """Longest run of one call."""
    memory_mb: Annotated[int, msgspec.Meta(ge=64, le=10**6)] = 1_024
    """Most address space of a process of the code, in MB of 1,048,576 bytes."""
    packages: tuple[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_]\w*$")], ...] = (
        "numpy",
        "sympy",
        "mpmath",
    )
    """What code may import beside the standard library."""
