"""What of a trajectory is in memory: blocks of folded rows, and unfolded steps as wrapped lines.

Both are bounded and the longest unused goes first, whatever the rollout's length. Pure: it says
what is missing or stale, somebody else reads it. What is stale is shown until it was read again.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from houston_console.app.drawing.lines import Line
from houston_console.app.transcript.records import StepRow

BLOCK = 64
"""Steps read at once: a little more than a screen."""
BLOCKS = 64
"""Blocks kept."""
GAP = 16
"""Steps between two wanted ones that are read along with them."""
SOME = 1_000
"""Rows kept beside the blocks."""
WRAPPED_LINES = 60_000
"""Lines of unfolded steps kept."""


class Pages:
    """Folded rows by block and wrapped steps by number."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, dict[int, StepRow]] = OrderedDict()
        self._some: OrderedDict[int, StepRow] = OrderedDict()
        self._wrapped: OrderedDict[int, list[Line]] = OrderedDict()
        self._lines = 0
        self._stale_rows: set[int] = set()
        self._stale_wrapped: set[int] = set()

    def row(self, step: int) -> StepRow | None:
        """The folded row of `step`, when it is here."""
        block = self._blocks.get(step // BLOCK)
        if block is None:
            return self._some.get(step)
        self._blocks.move_to_end(step // BLOCK)
        return block.get(step)

    def missing_blocks(self, steps: Iterable[int]) -> list[tuple[int, int]]:
        """First and last step of the blocks to read so that `steps` have rows that are new."""
        wanted = (step for step in steps if step > 0)
        numbers = sorted(
            {s // BLOCK for s in wanted if s in self._stale_rows or self.row(s) is None}
        )
        return [(number * BLOCK, number * BLOCK + BLOCK - 1) for number in numbers]

    def put_rows(self, first: int, rows: Sequence[StepRow]) -> None:
        """Keep the block that starts at `first`."""
        self._blocks[first // BLOCK] = {row.step: row for row in rows}
        self._blocks.move_to_end(first // BLOCK)
        self._stale_rows.difference_update(range(first, first + BLOCK))
        while len(self._blocks) > BLOCKS:
            self._blocks.popitem(last=False)

    def missing_rows(self, steps: Iterable[int]) -> list[tuple[int, int]]:
        """First and last step of what to read so that just these `steps` have rows that are new."""
        wanted = [s for s in steps if s > 0 and (s in self._stale_rows or self.row(s) is None)]
        found: list[tuple[int, int]] = []
        for step in wanted:
            if found and step <= found[-1][1] + GAP:
                found[-1] = (found[-1][0], step)
            else:
                found.append((step, step))
        return found

    def put_some(self, rows: Sequence[StepRow]) -> None:
        """Keep rows that are no whole block."""
        for row in rows:
            block = self._blocks.get(row.step // BLOCK)
            if block is None:
                self._some[row.step] = row
                self._some.move_to_end(row.step)
            else:
                block[row.step] = row
            self._stale_rows.discard(row.step)
        while len(self._some) > SOME:
            self._some.popitem(last=False)

    def wrapped(self, step: int) -> list[Line] | None:
        """The lines of an unfolded step (0: the task), when they are here."""
        found = self._wrapped.get(step)
        if found is not None:
            self._wrapped.move_to_end(step)
        return found

    def put_wrapped(self, step: int, lines: list[Line]) -> None:
        """Keep the lines of an unfolded step."""
        self.drop_wrapped(step)
        self._wrapped[step] = lines
        self._lines += len(lines)
        while self._lines > WRAPPED_LINES and len(self._wrapped) > 1:
            self._lines -= len(self._wrapped.popitem(last=False)[1])

    def needs_wrapping(self, step: int) -> bool:
        """Whether an unfolded step is to be read, or read again."""
        return step not in self._wrapped or step in self._stale_wrapped

    def drop_wrapped(self, step: int) -> None:
        """Forget the lines of one step."""
        self._lines -= len(self._wrapped.pop(step, ()))
        self._stale_wrapped.discard(step)

    def drop_all_wrapped(self) -> None:
        """The width changed: every line is to be wrapped again."""
        self._wrapped.clear()
        self._stale_wrapped.clear()
        self._lines = 0

    def touched(self, steps: Iterable[int]) -> None:
        """These steps have new events: what is kept of them is to be read again."""
        for step in steps:
            if step // BLOCK in self._blocks or step in self._some:
                self._stale_rows.add(step)
            if step in self._wrapped:
                self._stale_wrapped.add(step)

    @property
    def held(self) -> tuple[int, int]:
        """Rows and wrapped lines in memory."""
        return sum(map(len, self._blocks.values())) + len(self._some), self._lines
