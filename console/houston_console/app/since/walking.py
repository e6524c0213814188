"""A walk through what happened: one stop for each step with events, in order. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from houston_shared.store.queries.since import Happening


class Stop(NamedTuple):
    """A step, and what happened at it."""

    step: int
    at: int
    """When the first of it did, UTC microseconds."""
    text: str


def stops(events: Sequence[Happening]) -> list[Stop]:
    """Steps that are worth a stop; events that belong to no step have none."""
    found: dict[int, Stop] = {}
    for event in sorted(events, key=lambda one: (one.step, one.seq)):
        if not event.step:
            continue
        had = found.get(event.step)
        text = f"{had.text}; {event.text}" if had else event.text
        found[event.step] = Stop(event.step, had.at if had else event.at, text)
    return list(found.values())


class Walk:
    """Where somebody is on it."""

    def __init__(self, events: Sequence[Happening]) -> None:
        self.stops = stops(events)
        self.place = -1
        """Index of the last stop; -1 before the first."""

    def go(self, by: int, step: int) -> Stop | None:
        """The next stop (`by` 1) or the one before (-1); None at either end.

        step: where the cursor is: who has gone elsewhere walks on from there.
        """
        here = self.stops[self.place].step if 0 <= self.place < len(self.stops) else None
        if here is not None and here != step:
            after = [at for at, stop in enumerate(self.stops) if stop.step > step]
            before = [at for at, stop in enumerate(self.stops) if stop.step < step]
            place = (after or [len(self.stops)])[0] if by > 0 else (before or [-1])[-1]
        else:
            place = min(max(self.place + by, -1), len(self.stops))
        self.place = place
        return self.stops[place] if 0 <= place < len(self.stops) else None
