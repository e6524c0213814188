"""The screen that shows two rollouts of a task side by side; it is kept up to date."""

from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.compare.lines import compared
from houston_console.app.compare.plans import Side, sides
from houston_console.app.drawing.frame import title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line
from houston_console.app.keys import Area, bindings
from houston_console.app.screen import HoustonScreen
from houston_console.app.state import ConsoleState
from houston_shared.errors import HoustonError
from houston_shared.store.async_reader import AsyncReader

PLOT = 12
"""Lines of the plot; more on a high screen, fewer on a low one."""
LEAST_PLOT = 6


class Beside(LineView):
    """Lines that are made again for another width or other facts; the place in them stays."""

    has_cursor = False

    def __init__(self, make: Callable[[int], list[Line]], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._make = make
        self._lines: list[Line] = []

    def line_count(self) -> int:
        """As many as there are."""
        return len(self._lines)

    def line_at(self, number: int) -> Line:
        """One of them."""
        return self._lines[number]

    def again(self) -> None:
        """Make them, and draw them if they are others."""
        lines = self._make(self.room)
        if lines != self._lines:
            self._lines = lines
            super().show()

    def show(self) -> None:
        """For the width there is."""
        self._lines = self._make(self.room)
        super().show()


class CompareScreen(HoustonScreen):
    """Two rollouts."""

    BINDINGS = bindings("compare")

    def __init__(
        self, state: ConsoleState, reader: AsyncReader, home: str, first: str, second: str
    ) -> None:
        """reader: one that no key waits for."""
        super().__init__(state, home)
        self.text = Beside(self._lines, id="beside")
        self._reader = reader
        self._names = (first, second)
        self._pair: tuple[Side, Side] | None = None

    def body(self) -> ComposeResult:
        """One text."""
        with Vertical(id="compare"):
            yield self.text

    def on_mount(self) -> None:
        """Read both."""
        title(self.query_one("#compare"), "Side by side")
        self.hints.area("compare")
        self.set_focus(self.text)
        self.judged()

    @property
    def area(self) -> Area:
        """One place."""
        return "compare"

    async def caught_up(self, changed: bool) -> None:
        """What is new comes a moment later, by `judged`."""

    def judged(self) -> None:
        """Something changed: read again."""
        self.later(self._read, "compare")

    async def _read(self) -> None:
        try:
            self._pair = await self._reader.run(sides(*self._names))
        except HoustonError as problem:
            self.told(problem)
            return
        one, _ = self._pair
        title(self.query_one("#compare"), f"Side by side · {one.rollout.task}")
        self.text.again()

    def _lines(self, width: int) -> list[Line]:
        if self._pair is None:
            return []
        height = max(LEAST_PLOT, min(2 * PLOT, self.size.height - PLOT - 10))
        return compared(self._pair, self.state.me, width, height)

    def action_back(self) -> None:
        """Back to home."""
        self.leave()
