"""Row heights, folding and bounded caches of the transcript.

A Fenwick tree over row heights finds the row at a line in O(log rows). `FoldState` says which
rows are shown and unfolded; `TranscriptCache` keeps blocks of folded rows and wrapped steps, and
says what is missing or stale. It knows numbers and lines, no widget and no reader.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence

from houston_console.transcript.step_index import Run
from houston_console.transcript.trajectory_reader import FoldedStepRow
from houston_console.widgets.styled_text import TextLine


class FenwickTree:
    """Heights of rows 0, 1, … with their running sums."""

    def __init__(self, heights: Sequence[int] = ()) -> None:
        """The rows with these heights, laid out in one pass."""
        self._values = list(heights)
        self._tree = tree = [0, *heights]
        for index in range(1, len(tree)):
            parent = index + (index & -index)
            if parent < len(tree):
                tree[parent] += tree[index]

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, row: int) -> int:
        return self._values[row]

    @property
    def total(self) -> int:
        """Lines of all rows together."""
        return self.before(len(self._values))

    def append(self, height: int) -> None:
        """Add a row at the end."""
        self._values.append(height)
        index = len(self._values)
        parent = index - (index & -index)
        self._tree.append(self.before(index - 1) - self.before(parent) + height)

    def set(self, row: int, height: int) -> int:
        """Change one height; returns by how many lines it grew (negative: shrank)."""
        change = height - self._values[row]
        self._values[row] = height
        index = row + 1
        while change and index < len(self._tree):
            self._tree[index] += change
            index += index & -index
        return change

    def before(self, row: int) -> int:
        """Lines above `row`, i.e. its first line."""
        total = 0
        while row > 0:
            total += self._tree[row]
            row -= row & -row
        return total

    def find(self, line: int) -> tuple[int, int]:
        """The row that holds `line`, and the line's offset in it; clamped to the rows there are."""
        position, remaining = 0, max(0, line)
        step = 1 << (len(self._values).bit_length())
        while step:
            following = position + step
            if following < len(self._tree) and self._tree[following] <= remaining:
                position = following
                remaining -= self._tree[following]
            step >>= 1
        if position >= len(self._values):
            last = max(0, len(self._values) - 1)
            return last, (self._values[last] - 1 if self._values else 0)
        return position, remaining


MANY_ROWS = 500
"""So many rows get a height one by one; of more the tree is made anew."""


class FoldState:
    """Fold state and heights of rows 0, 1, ….

    A run of equal failures stands on the line of its first step, until it is unfolded.
    """

    def __init__(self, rows: int = 0, all_open: bool = False) -> None:
        self._heights = FenwickTree([1] * rows)
        self._all_open = all_open
        self._toggled_rows: set[int] = set()
        self._shown_rows: set[int] | None = None
        self._runs: list[Run] = []
        self._unfolded_at: set[int] = set()
        """Steps whose run is unfolded."""

    def __len__(self) -> int:
        return len(self._heights)

    @property
    def total(self) -> int:
        """Lines of all rows."""
        return self._heights.total

    def grow(self, rows: int) -> int:
        """Have at least `rows` rows; returns how many were added."""
        added_rows = max(0, rows - len(self))
        for _ in range(added_rows):
            self._heights.append(self._folded_height(len(self)))
        return added_rows

    # --- rows that are left out --------------------------------------------------------------

    @property
    def filtered(self) -> bool:
        """Whether only some rows are shown."""
        return self._shown_rows is not None

    @property
    def shown_rows(self) -> Collection[int] | None:
        """The rows that are shown; None for all."""
        return self._shown_rows

    def show_only(self, rows: set[int] | None) -> None:
        """Show these rows only, or all; what was laid out is to be laid out again."""
        self._shown_rows = rows
        self._reset_heights()

    def nearest_shown(self, row: int, by: int = 1) -> int:
        """`row`, or the nearest shown one in the direction `by`, else in the other; 0 for none."""
        if not self.total or self._heights[row]:
            return row if self.total else 0
        line = self.top(row) if by > 0 else self.top(row) - 1
        return self.at(max(0, min(line, self.total - 1)))[0]

    # --- runs of equal failures --------------------------------------------------------------

    @property
    def has_lines_of_several(self) -> bool:
        """Whether there are equal failures at all."""
        return bool(self._runs)

    def has_runs(self, runs: Sequence[Run]) -> bool:
        """Whether equal failures are just these."""
        return self._runs == runs

    def set_runs(self, runs: Sequence[Run]) -> None:
        """Equal failures are these now, in order; only rows of runs that changed are looked at."""
        before, self._runs = self._runs, list(runs)
        same = next(
            (at for at, (old, new) in enumerate(zip(before, runs, strict=False)) if old != new),
            min(len(before), len(runs)),
        )
        old, new = dict(before[same:]), dict(runs[same:])
        rows: list[range] = []
        for first in old.keys() | new.keys():
            last, last_before = new.get(first, first), old.get(first, first)
            rows.append(range(min(last, last_before) + 1, max(last, last_before) + 1))
        self._settle_rows(rows)

    def run_at(self, row: int) -> Run | None:
        """The run on whose line a row stands; None for a row with a line of its own."""
        if self._all_open or self._shown_rows is not None:
            return None
        run = self._run_of(row)
        return run if run and not self._is_unfolded(run) else None

    def extent(self, row: int) -> Run:
        """First and last step of the line that a row is on."""
        return self.run_at(row) or (row, row)

    def unfold_run(self, row: int) -> bool:
        """Give every step of a run a line of its own; whether there was such a run."""
        run = self.run_at(row)
        if run is not None:
            self._unfolded_at.add(row)
            self._settle_rows([range(run[0], run[1] + 1)])
        return run is not None

    def fold_run(self, row: int) -> int | None:
        """Put the run of a row on one line, its steps folded; the row of that line, if any."""
        run = self._run_of(row)
        if run is None or self._all_open or self._shown_rows is not None:
            return None
        rows = range(run[0], run[1] + 1)
        self._unfolded_at.difference_update(rows)
        self._toggled_rows.difference_update(rows)
        self._settle_rows([rows])
        return run[0]

    def _run_of(self, row: int) -> Run | None:
        at = bisect_right(self._runs, row, key=lambda run: run[0]) - 1
        return self._runs[at] if at >= 0 and row <= self._runs[at][1] else None

    def _is_unfolded(self, run: Run) -> bool:
        return any(run[0] <= step <= run[1] for step in self._unfolded_at)

    def _settle_rows(self, ranges: Sequence[range]) -> None:
        """Heights of rows that a run took in or let go; those that stay keep theirs."""
        if self._all_open or self._shown_rows is not None:
            return
        if sum(map(len, ranges)) > MANY_ROWS:
            opened = {row: self.height(row) for row in self._toggled_rows if row < len(self)}
            self._reset_heights()
            for row, height in opened.items():
                self.set_height(row, max(1, height))
            return
        for rows in ranges:
            for row in rows:
                if row < len(self) and bool(self._heights[row]) != bool(self._folded_height(row)):
                    self._heights.set(row, self._folded_height(row))

    # --- heights -----------------------------------------------------------------------------

    def _folded_height(self, row: int) -> int:
        """Lines of a row that was not laid out."""
        if self._shown_rows is not None:
            return int(row in self._shown_rows)
        run = self.run_at(row)
        return int(run is None or run[0] == row)

    def _reset_heights(self) -> None:
        if self._shown_rows is not None:
            heights = [int(row in self._shown_rows) for row in range(len(self))]
        else:
            heights = [1] * len(self)
            for first, last in () if self._all_open else self._runs:
                if not self._is_unfolded((first, last)):
                    hidden = max(0, min(last + 1, len(heights)) - first - 1)
                    heights[first + 1 : first + 1 + hidden] = [0] * hidden
        self._heights = FenwickTree(heights)

    def is_open(self, row: int) -> bool:
        """Whether `row` is unfolded."""
        return self._all_open != (row in self._toggled_rows)

    def set_open(self, row: int, open: bool) -> None:
        """Fold or unfold one row; unfolded it keeps its height until `set_height`."""
        if open == self._all_open:
            self._toggled_rows.discard(row)
        else:
            self._toggled_rows.add(row)
        if not open:
            self._heights.set(row, self._folded_height(row))

    def set_all(self, open: bool) -> None:
        """Fold or unfold every row, each run with them."""
        self._all_open = open
        self._toggled_rows.clear()
        self._unfolded_at.clear()
        self._reset_heights()

    @property
    def all_open(self) -> bool:
        """Whether rows are unfolded unless somebody folded them."""
        return self._all_open

    def set_height(self, row: int, height: int) -> int:
        """An unfolded row was laid out; returns by how many lines it grew."""
        return (
            self._heights.set(row, height) if self.is_open(row) and self._folded_height(row) else 0
        )

    def height(self, row: int) -> int:
        """Lines of `row`."""
        return self._heights[row]

    def top(self, row: int) -> int:
        """First line of `row`."""
        return self._heights.before(row)

    def at(self, line: int) -> tuple[int, int]:
        """Row and offset in it of `line`."""
        return self._heights.find(line)

    def between(self, first_line: int, count: int) -> Iterator[int]:
        """Rows that have a line among `count` lines from `first_line` on."""
        line, end = first_line, min(first_line + count, self.total)
        row, offset = self.at(line)
        while line < end:
            yield row
            line += self._heights[row] - offset
            row, offset = row + 1, 0
            if line < end and not self._heights[row]:
                row = self.at(line)[0]


BLOCK_STEPS = 64
"""Steps read at once: a little more than a screen."""
MAX_BLOCKS = 64
"""Blocks kept."""
MAX_READ_GAP = 16
"""Steps between two wanted ones that are read along with them."""
MAX_SINGLE_ROWS = 1_000
"""Rows kept beside the blocks."""
MAX_WRAPPED_LINES = 60_000
"""Lines of unfolded steps kept."""


class TranscriptCache:
    """Folded rows by block and wrapped steps by number."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, dict[int, FoldedStepRow]] = OrderedDict()
        self._single_rows: OrderedDict[int, FoldedStepRow] = OrderedDict()
        self._wrapped: OrderedDict[int, list[TextLine]] = OrderedDict()
        self._line_count = 0
        self._stale_rows: set[int] = set()
        self._stale_wrapped: set[int] = set()

    def row(self, step: int) -> FoldedStepRow | None:
        """The folded row of `step`, when it is here."""
        block = self._blocks.get(step // BLOCK_STEPS)
        if block is None:
            return self._single_rows.get(step)
        self._blocks.move_to_end(step // BLOCK_STEPS)
        return block.get(step)

    def missing_blocks(self, steps: Iterable[int]) -> list[tuple[int, int]]:
        """First and last step of the blocks to read so that `steps` have rows that are new."""
        wanted_steps = (step for step in steps if step > 0)
        numbers = sorted(
            {s // BLOCK_STEPS for s in wanted_steps if s in self._stale_rows or self.row(s) is None}
        )
        return [
            (number * BLOCK_STEPS, number * BLOCK_STEPS + BLOCK_STEPS - 1) for number in numbers
        ]

    def put_block(self, first: int, rows: Sequence[FoldedStepRow]) -> None:
        """Keep the block that starts at `first`."""
        self._blocks[first // BLOCK_STEPS] = {row.step: row for row in rows}
        self._blocks.move_to_end(first // BLOCK_STEPS)
        self._stale_rows.difference_update(range(first, first + BLOCK_STEPS))
        while len(self._blocks) > MAX_BLOCKS:
            self._blocks.popitem(last=False)

    def missing_rows(self, steps: Iterable[int]) -> list[tuple[int, int]]:
        """First and last step of what to read so that just these `steps` have rows that are new."""
        wanted_steps = [
            s for s in steps if s > 0 and (s in self._stale_rows or self.row(s) is None)
        ]
        ranges: list[tuple[int, int]] = []
        for step in wanted_steps:
            if ranges and step <= ranges[-1][1] + MAX_READ_GAP:
                ranges[-1] = (ranges[-1][0], step)
            else:
                ranges.append((step, step))
        return ranges

    def put_single_rows(self, rows: Sequence[FoldedStepRow]) -> None:
        """Keep rows that are no whole block."""
        for row in rows:
            block = self._blocks.get(row.step // BLOCK_STEPS)
            if block is None:
                self._single_rows[row.step] = row
                self._single_rows.move_to_end(row.step)
            else:
                block[row.step] = row
            self._stale_rows.discard(row.step)
        while len(self._single_rows) > MAX_SINGLE_ROWS:
            self._single_rows.popitem(last=False)

    def wrapped(self, step: int) -> list[TextLine] | None:
        """The lines of an unfolded step (0: the task), when they are here."""
        lines = self._wrapped.get(step)
        if lines is not None:
            self._wrapped.move_to_end(step)
        return lines

    def put_wrapped(self, step: int, lines: list[TextLine]) -> None:
        """Keep the lines of an unfolded step."""
        self.drop_wrapped(step)
        self._wrapped[step] = lines
        self._line_count += len(lines)
        while self._line_count > MAX_WRAPPED_LINES and len(self._wrapped) > 1:
            self._line_count -= len(self._wrapped.popitem(last=False)[1])

    def needs_wrapping(self, step: int) -> bool:
        """Whether an unfolded step is to be read, or read again."""
        return step not in self._wrapped or step in self._stale_wrapped

    def drop_wrapped(self, step: int) -> None:
        """Forget the lines of one step."""
        self._line_count -= len(self._wrapped.pop(step, ()))
        self._stale_wrapped.discard(step)

    def drop_all_wrapped(self) -> None:
        """The width changed: every line is to be wrapped again."""
        self._wrapped.clear()
        self._stale_wrapped.clear()
        self._line_count = 0

    def mark_stale(self, steps: Iterable[int]) -> None:
        """These steps have new events: what is kept of them is to be read again."""
        for step in steps:
            if step // BLOCK_STEPS in self._blocks or step in self._single_rows:
                self._stale_rows.add(step)
            if step in self._wrapped:
                self._stale_wrapped.add(step)

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and wrapped lines in memory."""
        return sum(map(len, self._blocks.values())) + len(self._single_rows), self._line_count
