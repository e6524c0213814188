"""The text of one terminal: its end as it grows, all that it ever printed, or a step's part of it.

Draws what `reading` found; asks for no more of a log than can be seen.
"""

from typing import Any

from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, Span, block, line, span, spread
from houston_console.app.terminals.log import Index
from houston_console.app.terminals.reading import Shown
from houston_shared.safe_text import SafeText

EDGE = Span(SafeText("▎"), "tool")
"""Stands before what the step printed that is looked at."""
COPIED = 5_000
"""Lines of a step that are copied at most."""


class TerminalText(LineView):
    """The output, its end visible until somebody scrolls up."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._index: Index | None = None
        self._screen: tuple[Line, ...] = ()
        self._marked = range(0)
        """Lines that the step printed, or the one that was gone to."""
        self._held = False
        """Whether a line was gone to: it stays in view while more is printed."""

    def line_count(self) -> int:
        """All lines of the log, or of what tmux shows."""
        return self._index.lines if self._index is not None else len(self._screen)

    def line_at(self, number: int) -> Line:
        """One of them; longer than the width is cut with `…`."""
        found = self._index.line(number) if self._index is not None else self._screen[number]
        if not self._marked:
            return spread(found, (), self.room)
        edge = EDGE if number in self._marked else span(" ")
        return (edge, *spread(found, (), self.room - 1))

    async def copied(self) -> tuple[str, str]:
        """What the step printed, else what can be seen."""
        top = round(self.scroll_y)
        seen = range(top, min(self.line_count(), top + self.size.height))
        wanted = self._marked[:COPIED] or seen
        rows = [self._index.line(n) if self._index else self._screen[n] for n in wanted]
        text = "\n".join("".join(part.text for part in row) for row in rows)
        return "what the step printed" if self._marked else "what the terminal shows", text

    def live(self, shown: Shown) -> None:
        """As it stands; at its end where it was there before."""
        there = round(self.scroll_y) >= round(self.max_scroll_y)
        held = self._held and shown.origin == "log" and not there
        at_end = not held and (bool(self._marked) or there)
        if not held:
            self._marked, self._held = range(0), False
        self._index = shown.log if shown.origin == "log" else None
        self._screen = shown.screen
        if shown.reason:
            self._screen = tuple(block(shown.reason, self.room, "warning"))
        self.show()
        if at_end:
            self.jump(self.line_count())

    def at_step(self, index: Index, start: int) -> None:
        """As a step left it; start: the first byte that the step printed."""
        self._index, self._screen, self._held = index, (), False
        self._marked = range(index.line_of(start), index.lines)
        self.show()
        height = max(1, self.size.height)
        self.jump(max(0, min(self._marked.start - 2, index.lines - height)))

    def at_byte(self, byte: int) -> None:
        """Go to the line of the log, as it is shown now, that holds a byte."""
        if self._index is None:
            return
        number = self._index.line_of(byte)
        self._marked, self._held = range(number, number + 1), True
        self.show()
        self.jump(number - self.size.height // 3)

    def nothing(self, why: str) -> None:
        """There is nothing to show, and this is why."""
        self._index, self._screen, self._marked = None, (), range(0)
        self.empty = line(span(f" {why}", "dim"))
        self.show()
