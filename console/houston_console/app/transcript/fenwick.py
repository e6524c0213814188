"""A Fenwick tree over row heights: from a line to its row and back in O(log rows).

P. M. Fenwick, "A new data structure for cumulative frequency tables", Software: Practice and
Experience 24(3), 1994. It knows numbers only, nothing of rows or widgets.
"""


class Fenwick:
    """Heights of rows 0, 1, … with their running sums."""

    def __init__(self, count: int = 0) -> None:
        """`count` rows, one line high each."""
        self._values = [1] * count
        self._tree = [0, *(i & -i for i in range(1, count + 1))]

    @classmethod
    def of(cls, heights: list[int]) -> "Fenwick":
        """Rows with these heights, in one pass."""
        made = cls()
        made._values = heights
        tree = [0, *heights]
        for index in range(1, len(tree)):
            parent = index + (index & -index)
            if parent < len(tree):
                tree[parent] += tree[index]
        made._tree = tree
        return made

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
