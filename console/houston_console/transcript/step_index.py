"""What is known of all steps of a rollout at once: failures, guidance, scores, and equal failures.

The index is read in parts, the newest first, and grows with new steps; only what has changed is
read again. It says which steps share a line because they failed equally one after the other
(`runs`), and what the gutter shows for each part of the rollout. Results are decoded in a thread.
`transcript.transcript_layout` decides which rows are drawn.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from houston_console.commands import step_outcomes
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_shared.records import ToolResult
from houston_shared.store import journal_events, rollout_queries
from houston_shared.store.journal_events import ReadPlan, Row, RunSql
from houston_shared.times_and_counts import number_ranges

INDEX_STEPS = 4_000
"""Steps that are read at once: some milliseconds, which a key may have to wait for."""
FIRST_INDEX_STEPS = 256
"""Steps at the end that are read before a rollout is shown, so that its screen does not change."""
RESULTS_AT_ONCE = 200
"""Failed steps whose results are read at once."""


class IndexRow(NamedTuple):
    """One step as the index needs it."""

    step: int
    attempt: int
    last_seq: int
    is_open: int
    errors: int
    guided: int
    score: float | None
    tools: str
    stands_alone: int
    """1 when something happened at it that a line of its own has to say: a change of a file, a
    new context."""


_INDEX_SQL = """
SELECT step, attempt, last_seq, observation_seq IS NULL, errors, guided, score, tools,
       errors > 0 AND (
           EXISTS (SELECT 1 FROM file_changes c
                   WHERE c.rollout = s.rollout AND c.step = s.step AND c.attempt = s.attempt)
           OR EXISTS (SELECT 1 FROM forks f WHERE f.rollout = s.rollout AND f.step = s.step))
FROM steps s WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 AND current = 1
AND (errors > 0 OR guided > 0 OR score IS NOT NULL OR observation_seq IS NULL) ORDER BY step
"""


def read_index_rows(rollout: str, first: int, last: int) -> ReadPlan[list[IndexRow]]:
    """Those of the steps `first` to `last` that failed, heard guidance, were scored or are open,
    in order; newest attempts only."""
    rows: list[Row] = []
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        rows += yield RunSql(_INDEX_SQL, tuple(part))
    return [IndexRow(*row) for row in rows]


def read_failed_results(
    rollout: str, steps: Sequence[int]
) -> ReadPlan[list[tuple[int, int, bytes]]]:
    """Step, attempt and encoded result of every call of some steps, in order; those that were
    erased are left out."""
    results: list[tuple[int, int, bytes]] = []
    for part in (yield from rollout_queries.step_ranges(rollout, steps[0], steps[-1])):
        part_steps = [step for step in steps if part.first <= step <= part.last]
        for marks, some in journal_events.split_for_in(part_steps):
            events = yield from journal_events.select_events(
                f"rollout = ? AND step IN ({marks}) AND part >= 'call.' AND part < 'call/'"
                " ORDER BY step, attempt, seq",
                (part.rollout, *some),
            )
            for event in events:
                body = yield from journal_events.read_event_body(event)
                if body is not None:
                    results.append((event.step, event.attempt, body))
    return results


Run = tuple[int, int]
"""First and last step of equal failures, one after the other."""


class StepIndex:
    """All steps of one rollout, as far as they were read."""

    def __init__(self) -> None:
        self.failed = bytearray()
        """By step, 1 where a call failed; 0 for steps that were not read yet."""
        self.guided = bytearray()
        """By step, 1 where it heard guidance."""
        self.scores: list[tuple[int, float]] = []
        """Step and score of every evaluation that gave one, in order."""
        self.runs: list[Run] = []
        self.version = 0
        """Rises with everything that is taken in."""
        self._known: dict[int, tuple[int, int, int]] = {}
        """By step of which something is to be said: attempt, newest event, whether it is open."""
        self._foldable: dict[int, str] = {}
        """Failed steps that may be one of several on a line, with their tools."""
        self._keys: dict[int, bytes | None] = {}
        """What they are equal by; None where it could not be read."""
        self._excluded_steps: set[int] = set()
        """Steps that have a line of their own all the same: somebody looks at them."""

    # --- what was read ----------------------------------------------------------------------

    def attempt(self, step: int) -> int:
        """The attempt that counts at a step; 0 where nothing is to be said of it."""
        return self._known.get(step, (0, 0, 0))[0]

    def put(self, rows: Sequence[IndexRow], first: int, last: int) -> list[int]:
        """Replace what is known of the steps `first` to `last`; returns the steps that changed, in
        order."""
        missing = last + 1 - len(self.failed)
        if missing > 0:
            self.failed.extend(bytes(missing))
            self.guided.extend(bytes(missing))
        row_steps = {row.step for row in rows}
        changed = [step for step in range(first, last + 1)
                   if step in self._known and step not in row_steps]  # fmt: skip
        for step in changed:
            self._forget(step)
        for row in rows:
            state = (row.attempt, row.last_seq, row.is_open)
            if self._known.get(row.step) != state:
                self._forget(row.step)
                self._known[row.step] = state
                self._put_row(row)
                changed.append(row.step)
        self.version += bool(changed) or missing > 0
        return sorted(changed)

    def _forget(self, step: int) -> None:
        self.failed[step] = self.guided[step] = 0
        self._known.pop(step, None)
        self._keys.pop(step, None)
        self._foldable.pop(step, None)
        at = bisect_left(self.scores, (step,))
        if at < len(self.scores) and self.scores[at][0] == step:
            del self.scores[at]

    def _put_row(self, row: IndexRow) -> None:
        self.failed[row.step] = row.errors > 0
        self.guided[row.step] = row.guided > 0
        if row.score is not None:
            insort(self.scores, (row.step, row.score))
        calm = not (row.guided or row.stands_alone or row.is_open or row.score is not None)
        if row.errors and calm:
            self._foldable[row.step] = row.tools

    def unread_keys(self, steps: Iterable[int]) -> list[int]:
        """Failed steps among `steps` and beside them that may equal a neighbour; in order."""
        near = {near for step in steps for near in (step - 1, step, step + 1)}
        return sorted(
            step
            for step in near & self._foldable.keys()
            if step not in self._keys
            and self._foldable[step] in (self._foldable.get(step - 1), self._foldable.get(step + 1))
        )

    def put_keys(self, keys: dict[int, bytes | None]) -> None:
        """What failed steps are equal by."""
        self._keys.update(keys)

    # --- equal failures ----------------------------------------------------------------------

    def exclude_from_runs(self, steps: Iterable[int]) -> None:
        """Let these have lines of their own, also where they equal their neighbours."""
        self._excluded_steps.update(steps)

    def rejoin_run(self, first: int, last: int) -> None:
        """Let no step of a range have a line of its own for that reason."""
        self._excluded_steps.difference_update(range(first, last + 1))
        self.find_runs(first, last)

    def rejoin_all_runs(self) -> None:
        """The same for every step."""
        for step in list(self._excluded_steps):
            self.rejoin_run(step, step)

    def equals_before(self, step: int) -> bool:
        """Whether a step and the one before it are equal failures."""
        key = self._keys.get(step)
        return key is not None and key == self._keys.get(step - 1)

    def _continues_run(self, step: int) -> bool:
        """Whether a step stands on one line with the one before it."""
        alone = step in self._excluded_steps or step - 1 in self._excluded_steps
        return not alone and self.equals_before(step)

    def equal_range(self, step: int) -> Run:
        """All equal failures around a step, whoever looks at one of them."""
        first = last = step
        while self.equals_before(first):
            first -= 1
        while self.equals_before(last + 1):
            last += 1
        return first, last

    def find_runs(self, first: int, last: int) -> None:
        """Find again which of the steps `first` to `last` share a line, and with which steps.

        Runs that reach beyond the range are cut or extended at these steps only; the steps outside
        are not looked at, however many there are.
        """
        low = bisect_left(self.runs, first - 1, key=lambda run: run[1])
        high = bisect_right(self.runs, last + 1, key=lambda run: run[0])
        touched = self.runs[low:high]
        start = min(first - 1, touched[0][0]) if touched else first - 1
        end = max(last + 1, touched[-1][1]) if touched else last + 1
        new_runs: list[Run] = []
        for step in range(first, last + 2):
            if self._continues_run(step):
                continue
            if step - 1 > start:
                new_runs.append((start, step - 1))
            start = step
        if end > start:
            new_runs.append((start, end))
        self.runs[low:high] = new_runs


class StepIndexer:
    """Reads the index of one rollout from its end, and what is new in it."""

    def __init__(
        self, source: RolloutSource, steps: int, stands_alone: Callable[[int], bool]
    ) -> None:
        """steps: the newest step. stands_alone: whether a step keeps a line of its own, since
        somebody looks at it."""
        self.index = StepIndex()
        self._source = source
        self._unread = steps
        """Steps before the part that was read."""
        self._stands_alone = stands_alone

    @property
    def complete(self) -> bool:
        """Whether every step was read."""
        return self._unread <= 0

    async def read_part(self, steps: int = INDEX_STEPS) -> None:
        """Read the newest steps that were not read yet. Raises HoustonError."""
        last, self._unread = self._unread, max(0, self._unread - steps)
        await self._read(self._unread + 1, last)

    async def read_changes(self, touched: Sequence[int], newest: int) -> None:
        """Read what is new or has changed of the part that was read. Raises HoustonError."""
        start = max(len(self.index.failed), self._unread + 1)
        steps = {step for step in touched if step > self._unread} | set(range(start, newest + 1))
        for first, last in number_ranges(sorted(steps)):
            await self._read(first, last)

    async def _read(self, first: int, last: int) -> None:
        if last < first:
            return
        rows = await self._source.read(read_index_rows(self._source.rollout, first, last))
        changed = self.index.put(rows, first, last)
        unread = self.index.unread_keys(changed)
        for at in range(0, len(unread), RESULTS_AT_ONCE):
            await self._read_keys(unread[at : at + RESULTS_AT_ONCE])
        self.index.exclude_from_runs(step for step in unread if self._stands_alone(step))
        for begin, end in number_ranges(sorted({*changed, *unread})):
            self.index.find_runs(begin, end)

    async def _read_keys(self, steps: list[int]) -> None:
        results = await self._source.read(read_failed_results(self._source.rollout, steps))
        counting = [
            (step, body) for step, attempt, body in results if attempt == self.index.attempt(step)
        ]
        keys = await asyncio.to_thread(_failure_keys, counting)
        self.index.put_keys({step: keys.get(step) for step in steps})


def _failure_keys(bodies: Iterable[tuple[int, bytes]]) -> dict[int, bytes | None]:
    """What each step failed equally by; results that cannot be read equal no other."""
    results: dict[int, list[ToolResult] | None] = {}
    for step, body in bodies:
        try:
            result = msgspec.msgpack.decode(body, type=ToolResult)
        except msgspec.MsgspecError:
            results[step] = None
            continue
        if (of_step := results.setdefault(step, [])) is not None:
            of_step.append(result)
    return {
        step: step_outcomes.failure_key(of_step) if of_step else None
        for step, of_step in results.items()
    }
