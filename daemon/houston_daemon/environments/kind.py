"""What an entry point of the group `houston.environments` names: a kind of environment.

The module that holds it imports lightly: what the environment needs is imported when one is made.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from houston_daemon.environments.arguments import Catalog
from houston_daemon.environments.protocol import Environment, Gpus, WaitingForSlot
from houston_shared.records import RolloutSpec
from houston_shared.task import LoadedTask, Task


@dataclass(frozen=True, slots=True)
class Making:
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


def _sound(task: LoadedTask) -> None:
    """Nothing to check."""


def _no_score(task: Task) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class EnvironmentKind:
    """One kind of environment."""

    make: Callable[[Making], Environment]
    """Touches nothing before the environment's `open`."""
    check: Callable[[LoadedTask], None] = _sound
    """Raises ConfigurationError for a task that could not run; asked before a rollout starts."""
    scores: Callable[[Task], bool] = _no_score
    """Whether it knows itself how well the agent did: it then answers a call of `eval`, which no
    tool of the agent has to be, with a result of kind `eval` (see `questions.observations`)."""
    secret_score: bool = False
    """Whether the agent is not told its score as it goes."""
    workspace: bool = False
    """Whether the agent works in a workspace, without which a rollout cannot go on."""
    sandbox: bool = False
    """Whether it runs processes in the task's sandbox."""
    catalog: Callable[[Task], Catalog] | None = None
    """Its actions for a task, where they are known before it is open; for `task validate`."""
