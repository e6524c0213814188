"""Which task and variation a rollout gets: by its seed, from the split that the task file names."""

import hashlib
from typing import Any

from houston_daemon.environments.scienceworld.tasks import (
    SIMPLIFICATIONS,
    VARIATIONS,
    is_electrical,
    variations,
)
from houston_shared.errors import ConfigurationError
from houston_shared.task_worlds import ScienceWorld


def check(settings: ScienceWorld, where: str) -> None:
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


def _check_variation(name: str, settings: ScienceWorld, where: str) -> None:
    there = variations(name, settings.split)
    if settings.variation >= 0 and settings.variation not in there:
        raise ConfigurationError(
            f"{where}: `scienceworld.variation` is {settings.variation}; the split "
            f"{settings.split!r} of {name} has {there.start} to {there.stop - 1}."
        )


def chosen(settings: ScienceWorld, seed: int) -> dict[str, Any]:
    """Task, variation and simplifications of a rollout.

    `repeat` consecutive seeds share a variation. Between them the tasks take turns, each going
    through all its variations of the split, in an order of its own, before one comes again.
    """
    number, tasks = seed // settings.repeat, _tasks(settings)
    task = tasks[number % len(tasks)]
    order = sorted(variations(task, settings.split), key=lambda one: _hash(f"{task}:{one}"))
    turn = number // len(tasks) % len(order)
    variation = settings.variation if settings.variation >= 0 else order[turn]
    return {
        "task": task,
        "variation": variation,
        "simplifications": ",".join(settings.simplifications),
    }


def _tasks(settings: ScienceWorld) -> tuple[str, ...]:
    return settings.tasks or tuple(VARIATIONS)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
