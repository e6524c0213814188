"""Files and searches: a list of either above, and below it the diffs or results that belong to it.

While no file was chosen the diffs are those of the step at the trajectory's cursor (or of the last
step before it that changed a file), so that reading the trajectory shows what it did to files. Of a
file that was chosen every change is listed, and below it the diff of the one at the cursor.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import UNREAD, Line, line, span
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.files import plans
from houston_console.app.files.lines import file_line, made_line, read, search_line
from houston_console.app.files.view import DiffText
from houston_console.app.keys import bindings
from houston_console.app.messages import Failed, GoTo, say
from houston_console.app.rollouts.order import Reading, held
from houston_console.app.source import RolloutSource
from houston_shared.errors import HoustonError
from houston_shared.store.queries import file_history
from houston_shared.store.queries.file_history import DIFFS, FileRow, Made
from houston_shared.store.queries.world import Search

View = Literal["files", "searches"]
VIEWS: tuple[View, ...] = ("files", "searches")
Item = FileRow | Made | Search


class FileList(LineView):
    """The files of a rollout, the changes of one of them, or searches."""

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rows: Sequence[Item] = ()
        self.reading, self.held = Reading(), False
        """Who is here; whether the order would be another if nobody were."""

    def line_count(self) -> int:
        """As many as there are."""
        return len(self.rows)

    def line_at(self, number: int) -> Line:
        """One of them."""
        row = self.rows[number]
        if isinstance(row, FileRow):
            return file_line(row, self.room)
        return made_line(row, self.room) if isinstance(row, Made) else search_line(row, self.room)

    def moved(self) -> None:
        """Tell it."""
        say(self, self.Moved())

    def take(self, rows: Sequence[Item]) -> None:
        """Show other rows, the cursor on its own; the same ones are not drawn again.

        Files keep their order while somebody moves through them: the one that changed last comes
        first some seconds later.
        """
        moves = self.has_focus and self.reading.moves
        wanted, rows = rows, held(rows, self.rows, _key) if moves else list(rows)
        self.held = rows != list(wanted)
        if rows == list(self.rows):
            return
        under = self.under_cursor
        self.rows = rows
        self.show()
        same = (at for at, row in enumerate(rows) if under and _key(row) == _key(under))
        at = next(same, None)
        if at is None:
            self.cursor = max(0, min(self.cursor, len(rows) - 1))
        else:
            self.keep_line(at)

    def touched(self) -> None:
        """Nothing changes the order for some seconds."""
        self.reading.touched()

    @property
    def under_cursor(self) -> Item | None:
        """The row with the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None


def _key(row: Item) -> tuple[str, str | int]:
    """Equal for what is the same row, whatever it says by now."""
    if isinstance(row, FileRow):
        return "file", row.path
    return ("change", row.step) if isinstance(row, Made) else ("search", row.seq)


class Files(ErrorBoundary, Vertical):
    """The area at the upper right."""

    BINDINGS = bindings("files")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source: RolloutSource | None = None
        self.view: View = "files"
        self.step = 0
        self._path = ""
        """The file whose changes are listed; empty for all files."""
        self._left = ""
        """The file whose changes were listed: the cursor goes back to it."""
        self._unread = 0
        """Files of the step whose diffs are not shown."""
        self._stale = False
        self._known = False
        """Whether anything of the rollout was read."""
        self._reading: asyncio.Task[None] | None = None
        self.listed, self.below = FileList(id="file-list"), DiffText(id="diffs")

    def compose(self) -> ComposeResult:
        """A list and what belongs to it."""
        yield self.listed
        yield self.below

    def on_mount(self) -> None:
        """Begin with files."""
        self._dress()

    def turn_to(self, source: RolloutSource) -> None:
        """Show another rollout; nothing of it was read yet."""
        self.source, self.step, self._path, self._known = source, 0, "", False
        self.listed.take(())
        self.below.take()
        self._dress()

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
        path, rollout = self._path, source.rollout
        if self.view == "searches":
            rows: Sequence[Item] = await source.read(file_history.searches(rollout))
        elif path:
            rows = await source.read(file_history.history(rollout, path))
        else:
            rows = await source.read(file_history.files(rollout))
        if source is self.source and path == self._path:
            self._known = True
            self.listed.take(rows)
            self._go_back(rows)
            await self._refresh_below(source)
            self._dress()

    def _go_back(self, rows: Sequence[Item]) -> None:
        """To the file whose changes were listed, wherever it stands by now."""
        left, self._left = self._left, ""
        for at, row in enumerate(rows if left else ()):
            if isinstance(row, FileRow) and row.path == left:
                self.listed.put_cursor(at)

    def rest(self) -> None:
        """Called once a second: in their own order again, where nobody moves through them."""
        if self.listed.held and not self.listed.reading.moves:
            self._read_soon()

    async def _refresh_below(self, source: RolloutSource) -> None:
        """What belongs to the row at the cursor, or to the step at the trajectory's."""
        under = self.listed.under_cursor
        if self.view == "searches":
            if isinstance(under, Search):
                text = await source.read(plans.result_text(under.seq))
                self.below.take(result=(under, text))
            else:
                self.below.take()
            return
        if isinstance(under, Made):
            made = [under]
        else:
            made = await source.read(file_history.of_step(source.rollout, self.step))
        self._unread = max(0, len(made) - DIFFS)
        found = await source.read(file_history.diffs(made[:DIFFS]))
        changes = await asyncio.to_thread(lambda: [read(one) for one in found])
        if source is self.source:
            self.below.take(changes)

    async def on_file_list_moved(self) -> None:
        """Results and the changes of a file follow the cursor."""
        if self.source is not None and (self.view == "searches" or self._path):
            await self._read_below_soon()

    async def _read_below_soon(self) -> None:
        try:
            if self.source is not None:
                await self._refresh_below(self.source)
        except HoustonError as problem:
            say(self, Failed(problem))

    def _dress(self) -> None:
        empty = line(span(f" no {self.view} yet", "dim")) if self._known else UNREAD
        if empty != self.listed.empty:
            self.listed.empty = empty
            self.listed.refresh()
        shown = [f"‹{view}›" if view == self.view else view for view in VIEWS]
        if self._path:
            shown = [f"‹{self._path}›", f"{len(self.listed.rows)} changes"]
        title(self, "4  " + "  ".join(shown))
        more = f"{self._unread} more files of this step" if self._unread else ""
        subtitle(self, line("esc all files" if self._path else more))

    async def action_view(self, by: int) -> None:
        """Files or searches."""
        at = (VIEWS.index(self.view) + by) % len(VIEWS)
        self.view, self._path = VIEWS[at], ""
        self.listed.cursor = 0
        await self.refresh_content()
        self.listed.focus()

    async def action_choose(self) -> None:
        """From a file to its changes; from a search or a change to its step."""
        row = self.listed.under_cursor
        if self.below.has_focus:
            if self.below.top_step is not None:
                say(self, GoTo(self.below.top_step))
        elif isinstance(row, FileRow):
            self._path, self.listed.cursor = row.path, 0
            await self.refresh_content()
        elif row is not None:
            say(self, GoTo(row.step))

    async def action_back(self) -> None:
        """From the changes of a file to the list."""
        if self._path:
            self._path, self._left = "", self._path
            await self.refresh_content()
        self.listed.focus()

    def action_beside(self) -> None:
        """Old and new side by side, or one below the other."""
        self.below.toggle()

    def action_scroll(self, by: int) -> None:
        """Half a page on or back in the diff, while the list keeps the focus."""
        self.below.scroll_pages(by / 2)
