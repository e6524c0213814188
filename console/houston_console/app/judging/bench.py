"""What is being judged, apart from any widget: the chosen range, what was done, how to undo it.

Pure. What was sent and never answered is sent again under its own key, so that it counts once.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from houston_shared.wire_people import JudgedSteps, Judgement

UNDO = 100
"""Deeds that can be taken back."""
RANGES = 500
"""Ranges that the daemon takes at once."""


class Range(NamedTuple):
    """Steps of one rollout, both ends included."""

    rollout: str
    first: int
    last: int

    shown: tuple[int, ...] = ()
    """The only ones of them that are meant: those on the screen, where others are left out."""

    @property
    def words(self) -> str:
        """`step 7`, `steps 3 to 9`, or `4 steps between 3 and 9`."""
        if self.shown and len(self.shown) < self.last - self.first + 1:
            count = len(self.shown)
            return f"{count} step{'s' * (count > 1)} between {self.first} and {self.last}"
        if self.first == self.last:
            return f"step {self.first}"
        return f"steps {self.first} to {self.last}"


class Deed(NamedTuple):
    """What one message to the daemon says."""

    request: str
    steps: Range
    given: tuple[JudgedSteps, ...]
    seen: int


class Done(NamedTuple):
    """A deed that the daemon took, and what stood before it."""

    steps: Range
    before: tuple[JudgedSteps, ...]
    seq: int


@dataclass
class Bench:
    """One person's judging at one console."""

    anchor: int = 0
    """Where the chosen range begins; 0 while none is chosen."""
    done: list[Done] = field(default_factory=list)
    doubtful: Deed | None = None
    """Sent, and not answered: whether it counts is not known."""

    def chosen(
        self, rollout: str, cursor: int, shown: Collection[int] | None = None
    ) -> Range | None:
        """The steps that a verdict would be on; None at the task, which is no step.

        shown: the only ones on the screen; None for all.
        """
        if not cursor:
            return None
        first, last = sorted((self.anchor or cursor, cursor))
        if shown is None:
            return Range(rollout, first, last)
        return Range(rollout, first, last, tuple(s for s in sorted(shown) if first <= s <= last))

    def meant(
        self, rollout: str, cursor: int, shown: Collection[int] | None = None
    ) -> Range | None:
        """The steps that a reason would be for: the chosen, or those just judged at the cursor."""
        newest = self.done[-1].steps if self.done and not self.anchor else None
        if newest and newest.rollout == rollout and newest.first <= cursor <= newest.last:
            return newest
        return self.chosen(rollout, cursor, shown)

    def deed(self, steps: Range, given: tuple[JudgedSteps, ...], seen: int) -> Deed:
        """A message, or once more the one that was not answered when it says the same."""
        again = self.doubtful
        if again is not None and (again.steps, again.given) == (steps, given):
            return again
        return Deed(uuid.uuid4().hex, steps, given, seen)

    def verdict(self, steps: Range, verdict: Judgement, seen: int) -> Deed:
        """Keep, mask or leave undecided; without a reason."""
        runs = _runs(steps.shown) if steps.shown else [(steps.first, steps.last)]
        given = (JudgedSteps(first=first, last=last, verdict=verdict) for first, last in runs)
        return self.deed(steps, tuple(given), seen)

    def taken(self, deed: Deed, before: tuple[JudgedSteps, ...], seq: int) -> Done:
        """The daemon has it: the range is chosen no longer, and it can be taken back."""
        done = Done(deed.steps, before, seq)
        self.done = [*self.done, done][-UNDO:]
        self.anchor, self.doubtful = 0, None
        return done

    def back(self, done: Done) -> Deed:
        """What brings back what stood before it."""
        return self.deed(done.steps, done.before, done.seq)

    def undo(self, rollout: str) -> tuple[Done, Deed] | None:
        """The newest deed on this rollout, and what brings back what stood before it."""
        found = next((one for one in reversed(self.done) if one.steps.rollout == rollout), None)
        if found is None:
            return None
        return found, self.back(found)

    def undone(self, what: Done) -> None:
        """It was taken back."""
        self.done = [one for one in self.done if one is not what]
        self.doubtful = None


def messages(deed: Deed) -> list[Deed]:
    """A deed as what the daemon takes at once; each part under a key of its own."""
    parts = [deed.given[at : at + RANGES] for at in range(0, len(deed.given), RANGES)]
    return [
        deed._replace(request=f"{deed.request}-{number}" if number else deed.request, given=part)
        for number, part in enumerate(parts)
    ]


def within(stands: tuple[JudgedSteps, ...], steps: Range) -> tuple[JudgedSteps, ...]:
    """What stands on the steps that are meant, and on no others."""
    only = set(steps.shown) or range(steps.first, steps.last + 1)
    return tuple(
        JudgedSteps(first=first, last=last, verdict=one.verdict, reason=one.reason)
        for one in stands
        for first, last in _runs([s for s in range(one.first, one.last + 1) if s in only])
    )


def reasoned(stands: tuple[JudgedSteps, ...], reason: str) -> tuple[JudgedSteps, ...]:
    """People's verdicts that stand, with another reason; what is undecided is left so."""
    return tuple(
        JudgedSteps(first=one.first, last=one.last, verdict=one.verdict, reason=reason)
        for one in stands
        if one.verdict != "undecided"
    )


def _runs(steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of every run of numbers without a gap."""
    found: list[tuple[int, int]] = []
    for step in steps:
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found
