"""Which rollout of an export trains the steps that branches share: each step weighs in one row
only.

A step is trained with the rollout that owns it, where that is exported, else with the first that
shares it; where that one's row was refused, with the next. Steps of branches are stored once, so
that owners are known from where each branch began.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from houston_shared.records import SampleRole
from houston_shared.store import rollout_queries
from houston_shared.store.rollout_queries import OwnedStepRange
from houston_shared.store.store_reader import Reader


class AnswerKey(NamedTuple):
    """Which answer of a rollout: the role it was sampled in, and the step as `Span` has it."""

    role: SampleRole
    step: int


LostAnswers: TypeAlias = Mapping[str, Collection[AnswerKey]]
"""By rollout, answers that would be trained in rows of it, which cannot stand in the export."""
NO_LOST_ANSWERS: LostAnswers = MappingProxyType({})


class SharedSteps:
    """Rollouts that are exported together."""

    def __init__(
        self, lines: Mapping[str, Sequence[OwnedStepRange]], lost: LostAnswers = NO_LOST_ANSWERS
    ) -> None:
        """lines: by rollout (whole ids, in the order of the export), whose its steps are."""
        self._lines = lines
        self._lost = lost
        self._sharing: dict[str, list[tuple[str, int]]] = {}
        for rollout, parts in lines.items():
            for part in parts:
                if part.rollout != rollout:
                    self._sharing.setdefault(part.rollout, []).append((rollout, part.last))

    def but(self, gone: Collection[str], lost: LostAnswers) -> "SharedSteps":
        """The same without some rollouts, and with what the others cannot train."""
        left = {one: parts for one, parts in self._lines.items() if one not in gone}
        return SharedSteps(left, lost)

    @property
    def branched(self) -> bool:
        """Whether any of them shares its past."""
        return bool(self._sharing)

    def elsewhere(self, rollout: str, whose: str, answer: AnswerKey) -> str:
        """The rollout that trains an answer where that is another; empty where it is `rollout`.

        whose: the rollout whose step it is.
        """
        for one in self._in_turn(whose, answer.step):
            if one == rollout:
                return ""
            if answer not in self._lost.get(one, ()):
                return one
        return ""

    def next(self, rollout: str, answer: AnswerKey) -> str:
        """Who trains what `rollout` cannot; empty where nobody else has it, or none of them can."""
        whose = self._whose(rollout, answer.step)
        able = (
            one
            for one in self._in_turn(whose, answer.step)
            if one != rollout and answer not in self._lost.get(one, ())
        )
        return next(able, "")

    def shared(self, rollout: str, answer: AnswerKey) -> bool:
        """Whether another of them has this answer of `rollout`, too."""
        whose = self._whose(rollout, answer.step)
        return any(one != rollout for one in self._in_turn(whose, answer.step))

    def _whose(self, rollout: str, step: int) -> str:
        return owner_of(rollout, self._lines[rollout], step)

    def _in_turn(self, whose: str, step: int) -> Iterator[str]:
        """Those that have a step, in the order in which they would train it."""
        if whose in self._lines:
            yield whose
        for one, last in self._sharing.get(whose, ()):
            if step <= last:
                yield one


NO_SHARED_STEPS = SharedSteps({})


def read_shared_steps(reader: Reader, rollouts: Sequence[str]) -> SharedSteps:
    """Rollouts of an export (whole ids), in its order; a short read each."""
    return SharedSteps({one: reader.run(rollout_queries.step_ranges(one)) for one in rollouts})


def owner_of(rollout: str, line: Sequence[OwnedStepRange], step: int) -> str:
    """The rollout whose step it is. line: of `rollout`."""
    return next((part.rollout for part in line if part.first <= step <= part.last), rollout)
