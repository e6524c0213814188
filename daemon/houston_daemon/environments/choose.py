"""Which environment a task names."""

from houston_daemon.environments.kind import Making
from houston_daemon.environments.protocol import Environment, Gpus, WaitingForSlot
from houston_daemon.environments.registry import kind
from houston_shared.records import RolloutSpec
from houston_shared.task import Task

CHARACTERS_PER_TOKEN = 3
"""Fewer than a tokenizer needs for prose, more than for noise; the loop cuts noise by tokens."""


def make_environment(
    spec: RolloutSpec,
    task: Task,
    *,
    waiting_for_slot: WaitingForSlot | None = None,
    observation_characters: int | None = None,
    owner: str = "",
    gpus: Gpus | None = None,
    lease: int = 0,
) -> Environment:
    """The environment of one rollout; nothing is touched before its `open`.

    observation_characters: most characters of one result; by default three for each token of the
    task's `observation_tokens` (30,000). A loop whose model has a small window gives fewer.
    owner: the home whose rollout it is. gpus: what it has leased. lease: the worker's.
    Raises ConfigurationError when there is no such environment (any more), or when the task names
    tools that it does not have.
    """
    characters = observation_characters or task.budget.observation_tokens * CHARACTERS_PER_TOKEN
    making = Making(spec, task, max(600, characters), waiting_for_slot, owner, gpus or {}, lease)
    return kind(task.environment).make(making)
