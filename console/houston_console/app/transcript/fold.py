"""Which rows are unfolded and how high they are: line numbers for the transcript.

Folded rows are one line at any width, so heights are exact without reading anything. An unfolded
row is one line high until it was laid out. No text and no widget is known here.
"""

from collections.abc import Iterable

from houston_console.app.transcript.fenwick import Fenwick


class Folds:
    """Fold state and heights of rows 0, 1, …."""

    def __init__(self, rows: int = 0) -> None:
        self._heights = Fenwick(rows)
        self._all_open = False
        self._flipped: set[int] = set()

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
            self._heights.append(1)
        return added

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
            self._heights.set(row, 1)

    def set_all(self, open: bool) -> None:
        """Fold or unfold every row."""
        self._all_open = open
        self._flipped.clear()
        if not open:
            self._heights = Fenwick(len(self))

    @property
    def all_open(self) -> bool:
        """Whether rows are unfolded unless somebody folded them."""
        return self._all_open

    def measured(self, row: int, height: int) -> int:
        """An unfolded row was laid out; returns by how many lines it grew."""
        return self._heights.set(row, height) if self.is_open(row) else 0

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
        if not len(self):
            return range(0)
        first = self.at(first_line)[0]
        last = self.at(first_line + max(0, count - 1))[0]
        return range(first, last + 1)
