"""Kinds of environments: what an entry point refers to, how one is found by name and made.

An entry point of the group `houston.environments` refers to an `EnvironmentKind`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from houston_daemon.environments.environment_protocol import (
    Environment,
    Gpus,
    ReportJob,
    WaitingForSlot,
    report_to_nobody,
)
from houston_daemon.environments.tool_arguments import Catalog
from houston_shared import plugins
from houston_shared.errors import ConfigurationError
from houston_shared.records import RolloutSpec
from houston_shared.task import LoadedTask, Task


@dataclass(frozen=True, slots=True)
class EnvironmentSetup:
    """What an environment is made from, for one rollout."""

    spec: RolloutSpec
    task: Task
    characters: int
    """Most characters of one result."""
    waiting_for_slot: WaitingForSlot | None = None
    owner: str = ""
    """The home whose rollout it is."""
    gpus: Gpus = field(default_factory=dict)
    """What it has leased."""
    lease: int = 0
    """Of the worker that makes it: other machines refuse an older one."""
    report_job: ReportJob = report_to_nobody
    """Told of commands that outlive the call which started them."""
    owner_elsewhere: str = ""
    """The home as other machines know it."""


def _no_check(task: LoadedTask) -> None:
    """Nothing to check."""


@dataclass(frozen=True, slots=True)
class EnvironmentKind:
    """One kind of environment."""

    make: Callable[[EnvironmentSetup], Environment]
    """Touches nothing before the environment's `open`."""
    check: Callable[[LoadedTask], None] = _no_check
    """Raises ConfigurationError for a task that could not run; asked before a rollout starts."""
    scores: Callable[[Task], bool] = lambda _: False
    """Whether it knows itself how well the agent did: it then answers a call of `eval`, which no
    tool of the agent has to be, with a result of kind `eval` (see
    `questions.question_answering`)."""
    secret_score: bool = False
    """Whether the agent is not told its score as it goes."""
    workspace: bool = False
    """Whether the agent works in a workspace, without which a rollout cannot go on."""
    sandbox: bool = False
    """Whether it runs processes in the task's sandbox."""
    shares_worker: bool = False
    """Whether one worker may run many rollouts of it at once: it has no host, keeps nothing outside
    its own object, and no call of it blocks the process."""
    catalog: Callable[[Task], Catalog] | None = None
    """Its actions for a task, where they are known before it is open; for `task validate`."""


@lru_cache(maxsize=32)
def kind(name: str) -> EnvironmentKind:
    """The environment called `name`. Raises ConfigurationError (see `plugins.load`)."""
    registered = plugins.load_plugin(plugins.ENVIRONMENT_GROUP, name, "environment")
    if not isinstance(registered, EnvironmentKind):
        raise ConfigurationError(
            f"The environment {name!r} is registered as a {type(registered).__name__}, "
            "not as an EnvironmentKind."
        )
    return registered


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
    report_job: ReportJob = report_to_nobody,
    owner_elsewhere: str = "",
) -> Environment:
    """The environment of one rollout; nothing is touched before its `open`.

    observation_characters: most characters of one result; by default three for each token of the
    task's `observation_tokens` (30,000). A loop whose model has a small window gives fewer.
    owner: the home of the rollout; owner_elsewhere: its name on other machines. gpus: the leased
    GPUs. lease: the worker's. report_job: gets reports of commands that outlive the call which
    started them.
    Raises ConfigurationError when there is no such environment (any more), or when the task names
    tools that it does not have.
    """
    characters = observation_characters or task.budget.observation_tokens * CHARACTERS_PER_TOKEN
    setup = EnvironmentSetup(
        spec,
        task,
        max(600, characters),
        waiting_for_slot,
        owner,
        gpus or {},
        lease,
        report_job,
        owner_elsewhere,
    )
    return kind(task.environment).make(setup)
