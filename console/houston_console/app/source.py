"""One rollout as the console reads it, over the asynchronous reader."""

from typing import TypeVar

from houston_console.app.transcript import plans, ways
from houston_console.app.transcript.plans import Changes, Opening
from houston_console.app.transcript.records import Beside, StepRow
from houston_shared.records import StepRecord
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.plan import Plan

T = TypeVar("T")


class RolloutSource:
    """Reads one rollout: a trajectory by its own methods, all else by plans of the rooms.

    Every method may raise HoustonError.
    """

    def __init__(self, reader: AsyncReader, rollout: str) -> None:
        self.rollout = rollout
        self._reader = reader
        self.seq = 0
        """Newest event of the rollout that was read."""

    async def read(self, plan: Plan[T]) -> T:
        """What a plan reads, in one short transaction."""
        return await self._reader.run(plan)

    async def rows(self, first: int, last: int) -> list[StepRow]:
        """Folded rows of the steps `first` to `last` that there are."""
        return await self.read(plans.step_rows(self.rollout, first, last))

    async def record(self, step: int) -> StepRecord | None:
        """Everything of one step; None when there is none."""
        return await self.read(plans.step_record(self.rollout, step))

    async def opening(self) -> Opening:
        """What the task asks, and the system prompt."""
        return await self.read(plans.opening(self.rollout))

    async def changes(self, since: int) -> Changes:
        """What is new after the sequence `since`."""
        found = await self.read(plans.changes(self.rollout, since))
        self.seq = found.seq
        return found

    async def beside(self, step: int) -> Beside:
        """What people and judges said of one step."""
        return await self.read(plans.beside(self.rollout, step))

    async def at_time(self, kind: str, since: int) -> int | None:
        """The first step after so much active time, or at a time of the clock (`places.Place`)."""
        return await self.read(ways.at_time(self.rollout, kind, since))

    async def nearest(self, step: int, kind: str, forward: bool) -> int | None:
        """The nearest step of a kind in `ways.WAYS` after or before `step`."""
        tools = await self.read(ways.tools_of(self.rollout, step)) if kind == "tool" else ""
        return await self.read(ways.nearest(self.rollout, step, kind, forward, tools))
