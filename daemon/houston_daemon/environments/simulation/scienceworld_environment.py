"""ScienceWorld (Wang et al. 2022, arXiv:2203.07540): which task and variation a rollout gets.

The seed chooses from the split that the task file names.
"""

import hashlib
from pathlib import Path
from typing import Any

from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.simulation import simulation_environment
from houston_daemon.environments.simulation.simulation_environment import Simulation
from houston_shared.errors import ConfigurationError
from houston_shared.task import LoadedTask, Task
from houston_shared.task_tables import ScienceWorldSettings, WorldSplit

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


def check_settings(settings: ScienceWorldSettings, where: str) -> None:
    """Raise ConfigurationError for tasks, variations and simplifications that are none."""
    for name in settings.tasks:
        if name not in VARIATIONS:
            raise ConfigurationError(
                f"{where}: `scienceworld.tasks` names {name!r}; allowed: {', '.join(VARIATIONS)}."
            )
    if len(set(settings.tasks)) < len(settings.tasks):
        raise ConfigurationError(f"{where}: `scienceworld.tasks` names a task twice.")
    for name in settings.simplifications:
        if name not in SIMPLIFICATIONS:
            raise ConfigurationError(
                f"{where}: `scienceworld.simplifications` names {name!r}; allowed: "
                f"{', '.join(SIMPLIFICATIONS)}."
            )
    for name in _tasks(settings):
        _check_variation(name, settings, where)
        if "noElectricalAction" in settings.simplifications and is_electrical(name):
            raise ConfigurationError(
                f"{where}: {name} needs the electrical actions that the simplification"
                " 'noElectricalAction' takes away."
            )


def _check_variation(name: str, settings: ScienceWorldSettings, where: str) -> None:
    of_split = variations(name, settings.split)
    if settings.variation >= 0 and settings.variation not in of_split:
        raise ConfigurationError(
            f"{where}: `scienceworld.variation` is {settings.variation}; the split "
            f"{settings.split!r} of {name} has {of_split.start} to {of_split.stop - 1}."
        )


def choose_variation(settings: ScienceWorldSettings, seed: int) -> dict[str, Any]:
    """Task, variation and simplifications of a rollout; `first_look` where there is to be none.

    `repeat` consecutive seeds share a variation. Between them the tasks take turns, each going
    through all its variations of the split, in an order of its own, before one comes again.
    """
    number, tasks = seed // settings.repeat, _tasks(settings)
    task = tasks[number % len(tasks)]
    order = sorted(
        variations(task, settings.split), key=lambda number_of: _hash(f"{task}:{number_of}")
    )
    turn = number // len(tasks) % len(order)
    variation = settings.variation if settings.variation >= 0 else order[turn]
    return {
        "task": task,
        "variation": variation,
        "simplifications": ",".join(settings.simplifications),
        **({} if settings.first_look else {"first_look": False}),
    }


def _tasks(settings: ScienceWorldSettings) -> tuple[str, ...]:
    return settings.tasks or tuple(VARIATIONS)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


_RESET = "reset task is not offered: a rollout is one attempt. Go on from here, or call finish."


class ScienceWorldSimulator:
    """See `simulation_environment.Simulator`."""

    module = "houston_daemon.environments.simulation.scienceworld_simulator"

    def missing(self) -> str:
        """What this machine lacks: the package, or Java."""
        return simulation_environment.missing("scienceworld", "java")

    def settings(self, task: Task, seed: int, folder: Path) -> dict[str, Any]:
        """Task and variation by the seed."""
        return choose_variation(task.scienceworld, seed)

    def inherit(self, parent: Path, folder: Path) -> dict[str, Any]:
        """Nothing: the world is in the package."""
        return {}

    def refused(self, action: str) -> str:
        """A reset would take back what went wrong."""
        return _RESET if action.lower() == "reset task" else ""


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would stop every rollout of the task at once."""
    simulation_environment.catalog(task.task)
    check_settings(task.task.scienceworld, str(task.file))
    simulation_environment.check_installed(task, ScienceWorldSimulator().missing())


def build_environment(setup: EnvironmentSetup) -> Simulation:
    """The environment; nothing is touched before `open`."""
    return Simulation(ScienceWorldSimulator(), setup.spec, setup.task, setup.characters)
