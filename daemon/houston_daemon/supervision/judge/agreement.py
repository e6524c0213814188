"""How well verdicts agree with people's: counts, precision, recall, F1, Cohen's kappa, bounds.

`mask` is what is looked for: precision is how many of the masked steps people masked too, recall
how many of the steps that people masked were found. Kappa is agreement beyond chance (Cohen 1960,
"A coefficient of agreement for nominal scales"); the bounds are Wilson's score interval at 95 %
(Wilson 1927), which holds for few and for extreme counts. Pure arithmetic.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from houston_shared.wilson import bounds

FEW = 30
"""Steps judged by people below which the figures say little."""
FEW_MASKED = 10
"""The same for steps that people masked, of which recall is a share."""


class Interval(NamedTuple):
    """A share with its bounds; None where there is nothing to share."""

    value: float | None
    low: float
    high: float


class Agreement(NamedTuple):
    """One source beside people, on the steps that both judged."""

    both: int
    """Masked by both."""
    only_source: int
    """Masked by the source, kept by people."""
    only_people: int
    """Kept by the source, masked by people."""
    neither: int

    @property
    def steps(self) -> int:
        """Steps that are compared."""
        return sum(self)

    @property
    def precision(self) -> Interval:
        """Of what the source masked, the share that people masked."""
        return wilson(self.both, self.both + self.only_source)

    @property
    def recall(self) -> Interval:
        """Of what people masked, the share that the source masked."""
        return wilson(self.both, self.both + self.only_people)

    @property
    def agreed(self) -> Interval:
        """The share of steps on which both say the same."""
        return wilson(self.both + self.neither, self.steps)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None where neither masked anything."""
        masked = 2 * self.both + self.only_source + self.only_people
        return 2 * self.both / masked if masked else None

    @property
    def kappa(self) -> float | None:
        """Agreement beyond chance; None where chance alone agrees always."""
        if not self.steps:
            return None
        source = (self.both + self.only_source) / self.steps
        people = (self.both + self.only_people) / self.steps
        chance = source * people + (1 - source) * (1 - people)
        seen = (self.both + self.neither) / self.steps
        return (seen - chance) / (1 - chance) if chance < 1 else None

    @property
    def few(self) -> str:
        """Why the figures say little; empty where there is enough."""
        masked = self.both + self.only_people
        if self.steps < FEW:
            return f"only {self.steps} steps were judged by people; {FEW} say something"
        if masked < FEW_MASKED:
            return f"people masked only {masked} of these steps; {FEW_MASKED} say something"
        return ""

    def as_json(self) -> dict[str, Any]:
        """The same as an object."""
        return {
            "steps": self.steps,
            "both_mask": self.both,
            "only_source_masks": self.only_source,
            "only_people_mask": self.only_people,
            "both_keep": self.neither,
            "precision": self.precision._asdict(),
            "recall": self.recall._asdict(),
            "agreement": self.agreed._asdict(),
            "f1": self.f1,
            "kappa": self.kappa,
            "few": self.few,
        }


def compare(pairs: Iterable[tuple[bool, bool]]) -> Agreement:
    """Counts of pairs (source masks, people mask)."""
    counts = Counter(pairs)
    return Agreement(
        both=counts[True, True],
        only_source=counts[True, False],
        only_people=counts[False, True],
        neither=counts[False, False],
    )


def wilson(hits: int, of: int) -> Interval:
    """`hits / of` with Wilson's bounds; the whole range where `of` is 0."""
    return Interval(hits / of if of else None, *bounds(hits, of))
