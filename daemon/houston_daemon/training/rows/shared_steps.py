"""Decides which rollout of an export trains the steps that branches share: each step has weight in
one row only.

A step is trained with the rollout that owns it, if that is exported, otherwise with the first
rollout that shares it. If that rollout's row was refused, the next one trains it. Steps of branches
are stored once, so the owner follows from where each branch began.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from houston_shared.sample_roles import SampleRole
from houston_shared.store import rollout_queries
from houston_shared.store.rollout_queries import OwnedStepRange
from houston_shared.store.store_reader import Reader


class AnswerKey(NamedTuple):
    """Which answer of a rollout: the role it was sampled in, and its step (`SampledSpan`)."""

    role: SampleRole
    step: int


LostAnswers: TypeAlias = Mapping[str, Collection[AnswerKey]]
"""By rollout, answers that would be trained in rows of it, which cannot stand in the export."""
NO_LOST_ANSWERS: LostAnswers = MappingProxyType({})


class SharedSteps:
    """Rollouts that are exported together."""

    def __init__(
        self, stretches: Mapping[str, Sequence[OwnedStepRange]], lost: LostAnswers = NO_LOST_ANSWERS
    ) -> None:
        """stretches: by rollout (whole ids, in the order of the export), whose its steps are."""
        self._stretches = stretches
        self._lost = lost
        self._sharing: dict[str, list[tuple[str, int]]] = {}
        for rollout, parts in stretches.items():
            for part in parts:
                if part.rollout != rollout:
                    self._sharing.setdefault(part.rollout, []).append((rollout, part.last))

    def without(self, rollouts: Collection[str], lost: LostAnswers) -> "SharedSteps":
        """The same without some rollouts, and with what the others cannot train."""
        remaining = {name: parts for name, parts in self._stretches.items() if name not in rollouts}
        return SharedSteps(remaining, lost)

    @property
    def branched(self) -> bool:
        """Whether any of them shares its past."""
        return bool(self._sharing)

    def trained_by_other(self, rollout: str, owner: str, answer: AnswerKey) -> str:
        """The rollout that trains an answer where that is another; empty where it is `rollout`.

        owner: the rollout whose step it is.
        """
        for sharer in self._sharers_in_order(owner, answer.step):
            if sharer == rollout:
                return ""
            if answer not in self._lost.get(sharer, ()):
                return sharer
        return ""

    def next_trainer(self, rollout: str, answer: AnswerKey) -> str:
        """Who trains what `rollout` cannot; empty where nobody else has it, or none of them can."""
        owner = self._owner_of(rollout, answer.step)
        able = (
            sharer
            for sharer in self._sharers_in_order(owner, answer.step)
            if sharer != rollout and answer not in self._lost.get(sharer, ())
        )
        return next(able, "")

    def is_shared(self, rollout: str, answer: AnswerKey) -> bool:
        """Whether another of them has this answer of `rollout`, too."""
        owner = self._owner_of(rollout, answer.step)
        return any(sharer != rollout for sharer in self._sharers_in_order(owner, answer.step))

    def _owner_of(self, rollout: str, step: int) -> str:
        return owner_of(rollout, self._stretches[rollout], step)

    def _sharers_in_order(self, owner: str, step: int) -> Iterator[str]:
        """Those that have a step, in the order in which they would train it."""
        if owner in self._stretches:
            yield owner
        for sharer, last in self._sharing.get(owner, ()):
            if step <= last:
                yield sharer


NO_SHARED_STEPS = SharedSteps({})


def read_shared_steps(reader: Reader, rollouts: Sequence[str]) -> SharedSteps:
    """Rollouts of an export (whole ids), in its order; a short read each."""
    return SharedSteps({name: reader.run(rollout_queries.step_ranges(name)) for name in rollouts})


def owner_of(rollout: str, stretches: Sequence[OwnedStepRange], step: int) -> str:
    """The rollout whose step it is. stretches: of `rollout`."""
    return next((part.rollout for part in stretches if part.first <= step <= part.last), rollout)
