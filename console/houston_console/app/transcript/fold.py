"""Which rows are shown, which unfolded, and how high they are: line numbers for the transcript.

Folded rows are one line at any width, so heights are exact without reading anything. An unfolded
row is one line high until it was laid out; one that is not shown has no line. No text and no widget
is known here.
"""

from collections.abc import Collection, Iterable

from houston_console.app.transcript.fenwick import Fenwick


class Folds:
    """Fold state and heights of rows 0, 1, …."""

    def __init__(self, rows: int = 0, all_open: bool = False) -> None:
        self._heights = Fenwick(rows)
        self._all_open = all_open
        self._flipped: set[int] = set()
        self._only: set[int] | None = None

    def __len__(self) -> int:
        return len(self._heights)

    @property
    def total(self) -> int:
        """Lines of all rows."""
        return self._heights.total

    def grow(self, rows: int) -> int:
        """Have at least `rows` rows; returns how many were added."""
        added = max(0, rows - len(self))
        for _ in range(added):
            self._heights.append(self._least(len(self)))
        return added

    @property
    def filtered(self) -> bool:
        """Whether only some rows are shown."""
        return self._only is not None

    @property
    def those(self) -> Collection[int] | None:
        """The rows that are shown; None for all."""
        return self._only

    def only(self, rows: set[int] | None) -> None:
        """Show these rows only, or all; what was laid out is to be laid out again."""
        self._only = rows
        self._again()

    def shown(self, row: int, by: int = 1) -> int:
        """`row`, or the nearest shown one in the direction `by`, else in the other; 0 for none."""
        if not self.total or self._heights[row]:
            return row if self.total else 0
        line = self.top(row) if by > 0 else self.top(row) - 1
        return self.at(max(0, min(line, self.total - 1)))[0]

    def _least(self, row: int) -> int:
        """Lines of a row that was not laid out."""
        return int(self._only is None or row in self._only)

    def _again(self) -> None:
        self._heights = Fenwick.of([self._least(row) for row in range(len(self))])

    def is_open(self, row: int) -> bool:
        """Whether `row` is unfolded."""
        return self._all_open != (row in self._flipped)

    def set_open(self, row: int, open: bool) -> None:
        """Fold or unfold one row; unfolded it keeps its height until `measured`."""
        if open == self._all_open:
            self._flipped.discard(row)
        else:
            self._flipped.add(row)
        if not open:
            self._heights.set(row, self._least(row))

    def set_all(self, open: bool) -> None:
        """Fold or unfold every row."""
        self._all_open = open
        self._flipped.clear()
        if not open:
            self._again()

    @property
    def all_open(self) -> bool:
        """Whether rows are unfolded unless somebody folded them."""
        return self._all_open

    def measured(self, row: int, height: int) -> int:
        """An unfolded row was laid out; returns by how many lines it grew."""
        return self._heights.set(row, height) if self.is_open(row) and self._least(row) else 0

    def height(self, row: int) -> int:
        """Lines of `row`."""
        return self._heights[row]

    def top(self, row: int) -> int:
        """First line of `row`."""
        return self._heights.before(row)

    def at(self, line: int) -> tuple[int, int]:
        """Row and offset in it of `line`."""
        return self._heights.find(line)

    def between(self, first_line: int, count: int) -> Iterable[int]:
        """Rows that have a line among `count` lines from `first_line` on."""
        if not self.total:
            return range(0)
        first = self.at(first_line)[0]
        last = self.at(first_line + max(0, count - 1))[0]
        if self._only is None:
            return range(first, last + 1)
        return [row for row in sorted(self._only) if first <= row <= last]
