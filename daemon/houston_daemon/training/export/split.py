"""Which tasks are held out: all rollouts of a task are on one side, and so are their branches.

Parts of one rollout, or two attempts at one task, on both sides would let a model be measured on
what it was trained on. A task is known by its content: under another name it is the same one.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from houston_shared.errors import ExitCode, HoustonError


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What is held out: a share of the tasks, or these."""

    fraction: float = 0.0
    """Share of the tasks, of which at least one is held out and one is not; 0: by name."""
    tasks: tuple[str, ...] = ()
    seed: int = 0

    def __bool__(self) -> bool:
        return bool(self.fraction or self.tasks)


class Member(NamedTuple):
    """A rollout, as far as a split goes by it."""

    rollout: str
    task: str
    parent: str
    """The rollout that it is a branch of; empty for none."""
    content: frozenset[str] = frozenset()
    """Keys of what it is of (`content.keys`): tasks whose rollouts share one stay together."""


def read_held_out(words: Sequence[str], seed: int = 0) -> HeldOut:
    """`--held-out` as it was typed: a share between 0 and 1, or names. Raises HoustonError."""
    if len(words) == 1:
        try:
            fraction = float(words[0])
        except ValueError:
            return HeldOut(tasks=(words[0],), seed=seed)
        if not 0 < fraction < 1:
            raise _wrong(f"{words[0]} is no share of the tasks between 0 and 1")
        return HeldOut(fraction, seed=seed)
    return HeldOut(tasks=tuple(sorted(set(words))), seed=seed)


def divide(members: Sequence[Member], held_out: HeldOut) -> frozenset[str]:
    """Tasks that are held out; empty when nothing is. Raises HoustonError where it cannot be.

    By share, tasks are taken in the order of a hash of seed and name: another task among them
    moves none of the others past each other. Names hold a split fast.
    """
    if not held_out:
        return frozenset()
    families = _families(members)
    known = {task for family in families for task in family}
    if missing := sorted(set(held_out.tasks) - known):
        raise _wrong(
            f"none of these rollouts is of the task {missing[0]!r}; they are of:"
            f" {', '.join(sorted(known))}"
        )
    if held_out.tasks:
        chosen = [family for family in families if family & set(held_out.tasks)]
    else:
        chosen = _share(families, held_out)
    if len(chosen) == len(families):
        same = " (tasks of equal content count as one)" if len(known) > len(families) else ""
        raise _wrong(f"no task would be left to train on: a split goes by task{same}")
    return frozenset(task for family in chosen for task in family)


def _share(families: list[frozenset[str]], held_out: HeldOut) -> list[frozenset[str]]:
    def place(family: frozenset[str]) -> bytes:
        return hashlib.sha256(f"{held_out.seed}\n{min(family)}".encode()).digest()

    return sorted(families, key=place)[: math.ceil(held_out.fraction * len(families))]


def _families(members: Sequence[Member]) -> list[frozenset[str]]:
    """Tasks that must stay together: a branch may run under another task than its parent, and one
    task may have two names."""
    task_of = {one.rollout: one.task for one in members}
    family = {task: frozenset({task}) for task in task_of.values()}
    first_of: dict[str, str] = {}
    for one in members:
        others = [task_of.get(one.parent, one.task)]
        others += [first_of.setdefault(key, one.task) for key in one.content]
        for other in others:
            joined = family[one.task] | family[other]
            for task in joined:
                family[task] = joined
    return sorted(set(family.values()), key=sorted)


def _wrong(why: str) -> HoustonError:
    return HoustonError(
        f"Nothing can be held out: {why}.",
        "Nothing was exported.",
        "houston task list, then --held-out TASK …",
        ExitCode.USAGE,
    )
