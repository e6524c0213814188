"""The 30 tasks of ScienceWorld with their numbers of variations, and how these are split.

As scienceworld 1.2.3 has them; a test compares. Kept here so that a task file can be checked, and a
seed be given its variation, without Java.
"""

from houston_shared.task_worlds import WorldSplit

VARIATIONS: dict[str, int] = {
    "boil": 30,
    "melt": 30,
    "freeze": 30,
    "change-the-state-of-matter-of": 30,
    "use-thermometer": 540,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "find-animal": 300,
    "grow-plant": 126,
    "grow-fruit": 126,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125,
    "lifespan-shortest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
}
SIMPLIFICATIONS = (
    "easy", "teleportAction", "selfWateringFlowerPots", "openContainers", "openDoors",
    "noElectricalAction",
)  # fmt: skip
_ELECTRICAL = ("power-component", "conductivity")


def variations(task: str, split: WorldSplit) -> range:
    """The variations of a task that belong to a split; ScienceWorld's own: two whole quarters, one,
    and the rest."""
    total = VARIATIONS[task]
    quarter = total // 4
    return {
        "train": range(2 * quarter),
        "dev": range(2 * quarter, 3 * quarter),
        "test": range(3 * quarter, total),
    }[split]


def is_electrical(task: str) -> bool:
    """Whether a task needs `connect`, which `noElectricalAction` takes away."""
    return any(word in task for word in _ELECTRICAL)
