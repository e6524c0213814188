"""Which environment a task names."""

from houston_daemon.environments.null import NullEnvironment
from houston_daemon.environments.protocol import Environment, WaitingForSlot
from houston_daemon.environments.search_qa.environment import SearchQa
from houston_daemon.environments.workstation.build import build
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
) -> Environment:
    """The environment of one rollout; nothing is touched before its `open`.

    observation_characters: most characters of one result; by default three for each token of the
    task's `observation_tokens` (30,000). A loop whose model has a small window gives fewer.
    owner: the home whose rollout it is.
    Raises ConfigurationError when the task names tools that the environment does not have.
    """
    characters = observation_characters or task.budget.observation_tokens * CHARACTERS_PER_TOKEN
    if task.environment == "null":
        return NullEnvironment(task)
    if task.environment == "search_qa":
        return SearchQa(spec, task, max(600, characters))
    return build(spec, task, max(600, characters), waiting_for_slot, owner)
