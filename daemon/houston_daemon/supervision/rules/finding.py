"""What a rule says, and what a rule is."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from houston_daemon.supervision.trace import Trace
from houston_shared.task_rules import Rules


class Finding(NamedTuple):
    """A step that should not be learned, and why."""

    step: int
    reason: str
    """A few words, without the rule's name."""


Masks: TypeAlias = Callable[[Trace, Rules], Iterable[Finding]]
"""A rule: a pure function of the rollout and the task's `[rules]`; it may find a step twice."""


class Rule(NamedTuple):
    """One of the catalog."""

    version: int
    """Raised when it masks in other cases than before."""
    masks: Masks
