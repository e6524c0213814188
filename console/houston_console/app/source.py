"""One rollout as the console reads it: every read in one place, over the asynchronous reader."""

from houston_console.app import plans
from houston_console.app.plans import Changes, Opening
from houston_console.app.records import FileRow, StepChange, StepRow
from houston_shared.records import Guidance, StepRecord
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.queries import guidance, world
from houston_shared.store.queries.world import Search, Terminal


class RolloutSource:
    """Reads one rollout. Every method may raise HoustonError."""

    def __init__(self, reader: AsyncReader, rollout: str) -> None:
        self.rollout = rollout
        self._reader = reader

    async def rows(self, first: int, last: int) -> list[StepRow]:
        """Folded rows of the steps `first` to `last` that there are."""
        return await self._reader.run(plans.step_rows(self.rollout, first, last))

    async def record(self, step: int) -> StepRecord | None:
        """Everything of one step; None when there is none."""
        return await self._reader.run(plans.step_record(self.rollout, step))

    async def opening(self) -> Opening:
        """What the task asks, and the system prompt."""
        return await self._reader.run(plans.opening(self.rollout))

    async def changes(self, since: int) -> Changes:
        """What is new after the sequence `since`."""
        return await self._reader.run(plans.changes(self.rollout, since))

    async def guidance(self) -> list[Guidance]:
        """All guidance, in the order it was queued."""
        return await self._reader.run(guidance.of_rollout(self.rollout))

    async def files(self) -> list[FileRow]:
        """Files that steps changed, the newest change first."""
        return await self._reader.run(plans.files(self.rollout))

    async def file_changes(self, path: str) -> list[StepChange]:
        """Changes of one file, the newest first."""
        return await self._reader.run(plans.diffs(self.rollout, path=path))

    async def step_changes(self, step: int) -> list[StepChange]:
        """Changes that the newest step up to `step` made that made any."""
        latest = await self._reader.run(plans.latest_change(self.rollout, step))
        return await self._reader.run(plans.diffs(self.rollout, step=latest)) if latest else []

    async def result_text(self, seq: int) -> str:
        """What one call returned."""
        return await self._reader.run(plans.result_text(seq))

    async def searches(self) -> list[Search]:
        """Searches, the newest first."""
        return (await self._reader.run(world.searches(self.rollout)))[::-1]

    async def terminals(self) -> list[Terminal]:
        """Terminals that steps have used."""
        return await self._reader.run(world.terminals(self.rollout))

    async def neighbour(self, step: int, column: str, forward: bool) -> int | None:
        """The nearest step after or before `step` that has errors, or guidance."""
        return await self._reader.run(plans.neighbour(self.rollout, step, column, forward))
