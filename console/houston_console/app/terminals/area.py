"""Terminals of the rollout: the end of one terminal's output, as it grows.

Read-only: no key reaches a terminal from here. Looked at only while it is on the screen, at most
five times a second, and drawn only when the output grew.
"""

from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, block, line, span, spread
from houston_console.app.keys import bindings
from houston_console.app.source import RolloutSource
from houston_console.app.terminals import files as terminal_files
from houston_console.app.terminals.files import Tail
from houston_shared.store.queries import world

LOOK_SECONDS = 0.2
NAMES = 40
"""Cells of the title that names take before they are left out."""


class TerminalText(LineView):
    """The output, its end visible until somebody scrolls up."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._lines: list[Line] = []

    def line_count(self) -> int:
        """Lines of the end that was read."""
        return len(self._lines)

    def line_at(self, number: int) -> Line:
        """One of them; longer than the width is cut with `…`."""
        return spread(self._lines[number], (), self.room)

    def take(self, lines: list[Line]) -> None:
        """Show other output; stays at the end when it was there."""
        if lines == self._lines and lines:
            return
        at_end = round(self.scroll_y) >= round(self.max_scroll_y)
        self._lines = lines
        self.show()
        if at_end:
            self.jump(len(lines))


class Terminals(Vertical):
    """The area at the lower right."""

    BINDINGS = bindings("terminals")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.text = TerminalText(id="terminal-text")
        self.source: RolloutSource | None = None
        self.host_root = ""
        self.names: list[tuple[str, str]] = []
        self.chosen = 0
        self._mark = -1
        self._looking = False

    def compose(self) -> ComposeResult:
        """One text."""
        yield self.text

    def on_mount(self) -> None:
        """Look regularly; `look` does nothing while nobody can see it."""
        self._dress(Tail([], ""))
        self.set_interval(LOOK_SECONDS, self.look)

    async def open(self, source: RolloutSource, host_root: str) -> None:
        """Show another rollout."""
        self.source, self.host_root = source, host_root
        self.names, self.chosen, self._mark = [], 0, -1
        self._take(Tail([], ""))
        await self.refresh_names()

    async def refresh_names(self) -> None:
        """Terminals that steps used, and those that have a log here already."""
        source = self.source
        if source is None:
            return
        stored = [
            (one.host, one.name) for one in await source.read(world.terminals(source.rollout))
        ]
        here = [("local", name) for name in terminal_files.known(self.host_root, source.rollout)]
        names = sorted(set(stored) | set(here))
        if source is self.source and names != self.names:
            chosen = self.names[self.chosen] if self.names else None
            self.names = names
            self.chosen = names.index(chosen) if chosen in names else 0
            self._mark = -1
            await self.look()

    async def look(self) -> None:
        """Read the chosen terminal's end, when somebody can see it and it grew."""
        source = self.source
        if source is None or self._looking or not self.names or self.size.width == 0:
            return
        self._looking = True
        host, name = self.names[self.chosen]
        try:
            found = await terminal_files.tail(
                self.host_root, source.rollout, host, name, self._mark
            )
        finally:
            self._looking = False
        still = self.names and self.names[self.chosen] == (host, name)
        if found is not None and source is self.source and still:
            self._take(found)

    def _take(self, tail: Tail) -> None:
        self._mark = tail.mark
        room = self.text.room
        self.text.take(block(tail.reason, room, "warning") if tail.reason else tail.lines)
        self._dress(tail)

    def _dress(self, tail: Tail) -> None:
        shown = [
            f"‹{name}›" if index == self.chosen else name
            for index, (_, name) in enumerate(self.names)
        ]
        while len(shown) > 2 and sum(map(len, shown)) > NAMES:
            shown.pop(0 if self.chosen > len(self.names) // 2 else -1)
        title(self, "  ".join(["3 Terminals", *shown]))
        host = self.names[self.chosen][0] if self.names else ""
        subtitle(self, line(f"{host} · {tail.origin}" if tail.origin else ""))
        self.text.empty = line(
            span(" no output" if self.names else " no terminal was used yet", "dim")
        )

    async def action_terminal(self, by: int) -> None:
        """Another terminal."""
        if self.names:
            self.chosen, self._mark = (self.chosen + by) % len(self.names), -1
            await self.look()
