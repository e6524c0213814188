"""Where a trajectory's rows come from, as the transcript knows it."""

from typing import Protocol

from houston_console.app.transcript.plans import Opening
from houston_console.app.transcript.records import Beside, StepRow
from houston_shared.records import StepRecord


class Source(Protocol):
    """One rollout. Every method may raise HoustonError."""

    async def rows(self, first: int, last: int) -> list[StepRow]:
        """Folded rows of the steps `first` to `last` that there are."""
        ...

    async def record(self, step: int) -> StepRecord | None:
        """Everything of one step; None when there is none."""
        ...

    async def beside(self, step: int) -> Beside:
        """What people and judges said of one step."""
        ...

    async def opening(self) -> Opening:
        """Row 0."""
        ...
