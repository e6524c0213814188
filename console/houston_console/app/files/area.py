"""Files and searches: a list of either above, and below it the diffs or results that belong to it.

While nothing was chosen the diffs are those of the step at the trajectory's cursor (or of the last
step before it that changed a file), so that reading the trajectory shows what it did to files.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, block, line, span
from houston_console.app.files import plans
from houston_console.app.files.lines import change_lines, file_line, search_line
from houston_console.app.files.plans import FileRow, StepChange
from houston_console.app.keys import bindings
from houston_console.app.messages import Failed, GoTo, say
from houston_console.app.source import RolloutSource
from houston_shared.errors import HoustonError
from houston_shared.store.queries import world
from houston_shared.store.queries.world import Search

View = Literal["files", "searches"]
VIEWS: tuple[View, ...] = ("files", "searches")


class FileList(LineView):
    """The files of a rollout, or its searches."""

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rows: Sequence[FileRow | Search] = ()

    def line_count(self) -> int:
        """Files or searches."""
        return len(self.rows)

    def line_at(self, number: int) -> Line:
        """One file or search."""
        row = self.rows[number]
        make: Any = file_line if isinstance(row, FileRow) else search_line
        found: Line = make(row, self.room)
        return found

    def moved(self) -> None:
        """Tell it."""
        say(self, self.Moved())

    def take(self, rows: Sequence[FileRow | Search]) -> None:
        """Show other rows."""
        self.rows = rows
        self.cursor = max(0, min(self.cursor, len(rows) - 1))
        self.show()

    @property
    def under_cursor(self) -> FileRow | Search | None:
        """The row with the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None


class DiffText(LineView):
    """Diffs one after the other, or the text of one result."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.changes: list[StepChange] = []
        self.result: tuple[int, str] = (0, "")
        self._lines: list[Line] = []
        self._steps: list[int] = []
        self._wrapped_for = 0

    def line_count(self) -> int:
        """Lines of all diffs."""
        return len(self._lines)

    def line_at(self, number: int) -> Line:
        """One line of a diff."""
        return self._lines[number]

    def take(self, changes: list[StepChange], result: tuple[int, str] = (0, "")) -> None:
        """Show other diffs, or a result (its step and its text), from the start."""
        if (changes, result) != (self.changes, self.result):
            self.changes, self.result, self._wrapped_for = changes, result, 0
            self.show()
            self.jump(0)

    def show(self) -> None:
        """Wrap for the width there is."""
        if self._wrapped_for != self.room:
            self._wrapped_for = self.room
            step, text = self.result
            self._lines = block(text, self.room, "dim") if text else []
            self._steps = [step] * len(self._lines)
            for change in self.changes:
                wrapped = change_lines(change, self.room)
                self._lines += wrapped
                self._steps += [change.step] * len(wrapped)
        super().show()

    @property
    def top_step(self) -> int | None:
        """The step of what is at the top."""
        at = round(self.scroll_y)
        return self._steps[at] if at < len(self._steps) else None


class Files(Vertical):
    """The area at the upper right."""

    BINDINGS = bindings("files")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source: RolloutSource | None = None
        self.view: View = "files"
        self.step = 0
        self._path = ""
        self._stale = False
        self._reading: asyncio.Task[None] | None = None
        self.listed, self.below = FileList(id="file-list"), DiffText(id="diffs")

    def compose(self) -> ComposeResult:
        """A list and what belongs to it."""
        yield self.listed
        yield self.below

    def on_mount(self) -> None:
        """Begin with files."""
        self._dress()

    def open(self, source: RolloutSource) -> None:
        """Show another rollout."""
        self.source, self.step, self._path = source, 0, ""
        self.listed.cursor = 0

    def follow(self, step: int) -> None:
        """The trajectory's cursor is on another step; no key waits for what that reads."""
        if step != self.step:
            self.step = step
            self._read_soon()

    async def refresh_content(self, step: int | None = None) -> None:
        """Read again what is shown; `step` is the one at the trajectory's cursor."""
        self.step = self.step if step is None else step
        await self._read_soon()

    def _read_soon(self) -> "asyncio.Task[None]":
        """One read at a time, and one more after it for all that was asked meanwhile."""
        self._stale = True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_while_stale())
        return self._reading

    async def _read_while_stale(self) -> None:
        while self._stale:
            self._stale = False
            try:
                await self._read()
            except HoustonError as problem:
                say(self, Failed(problem))

    async def _read(self) -> None:
        source = self.source
        if source is None or self.size.width == 0:
            return  # nobody can see it
        if self.view == "files":
            rows: Sequence[FileRow | Search] = await source.read(plans.files(source.rollout))
        else:
            rows = (await source.read(world.searches(source.rollout)))[::-1]
        if source is self.source:
            self.listed.take(rows)
            await self._refresh_below(source)
            self._dress()

    async def _refresh_below(self, source: RolloutSource) -> None:
        under, below = self.listed.under_cursor, self.below
        if self.view == "searches" and isinstance(under, Search):
            below.take([], (under.step, await source.read(plans.result_text(under.seq))))
        elif self._path:
            below.take(await source.read(plans.diffs(source.rollout, path=self._path)))
        elif self.view == "files":
            below.take(await source.read(plans.step_diffs(source.rollout, self.step)))
        else:
            below.take([])

    async def on_file_list_moved(self) -> None:
        """Results follow the cursor; diffs do when somebody chooses."""
        if self.source is not None and self.view == "searches":
            await self._refresh_below(self.source)

    def _dress(self) -> None:
        self.listed.empty = line(span(f" no {self.view} yet", "dim"))
        shown = [f"‹{view}›" if view == self.view else view for view in VIEWS]
        title(self, "4  " + "  ".join(shown))
        subtitle(self, line(f"history of {self._path}" if self._path else ""))
        self.listed.refresh()

    async def action_view(self, by: int) -> None:
        """Files or searches."""
        at = (VIEWS.index(self.view) + by) % len(VIEWS)
        self.view, self._path = VIEWS[at], ""
        self.listed.cursor = 0
        await self.refresh_content()
        self.listed.focus()

    async def action_choose(self) -> None:
        """From a file to its changes; from a search or a change to its step."""
        below, row = self.below, self.listed.under_cursor
        if below.has_focus:
            if below.top_step is not None:
                say(self, GoTo(below.top_step))
        elif isinstance(row, FileRow):
            self._path = row.path
            await self.refresh_content()
            below.focus()
        elif row is not None:
            say(self, GoTo(row.step))

    async def action_back(self) -> None:
        """From the changes of a file to the list."""
        self._path = ""
        await self.refresh_content()
        self.listed.focus()
