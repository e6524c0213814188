"""Files and searches: what the step at the cursor changed, every file's history, every search."""

from collections.abc import Sequence
from typing import Any, Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from houston_console.app.diff_lines import change_lines
from houston_console.app.keymap import bindings
from houston_console.app.lines import Line, line, span
from houston_console.app.listing import file_line, search_line
from houston_console.app.records import FileRow, StepChange
from houston_console.app.source import RolloutSource
from houston_console.app.widgets.frame import subtitle, title
from houston_console.app.widgets.line_view import LineView
from houston_shared.store.queries.world import Search

View = Literal["step", "files", "searches"]
VIEWS: tuple[View, ...] = ("step", "files", "searches")


class FileList(LineView):
    """The files of a rollout, or its searches."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rows: Sequence[FileRow | Search] = ()

    def line_count(self) -> int:
        """Files or searches."""
        return len(self.rows)

    def line_at(self, number: int) -> Line:
        """One file or search."""
        row = self.rows[number]
        return (
            file_line(row, self.room) if isinstance(row, FileRow) else search_line(row, self.room)
        )

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
    """Diffs, one after the other."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.changes: list[StepChange] = []
        self._lines: list[Line] = []
        self._steps: list[int] = []
        self._wrapped_for = 0

    def line_count(self) -> int:
        """Lines of all diffs."""
        return len(self._lines)

    def line_at(self, number: int) -> Line:
        """One line of a diff."""
        return self._lines[number]

    def take(self, changes: list[StepChange]) -> None:
        """Show other diffs, from their start."""
        if changes != self.changes:
            self.changes, self._wrapped_for = changes, 0
            self.show()
            self.jump(0)

    def show(self) -> None:
        """Wrap for the width there is."""
        if self._wrapped_for != self.room:
            self._wrapped_for, self._lines, self._steps = self.room, [], []
            for change in self.changes:
                wrapped = change_lines(change, self.room)
                self._lines += wrapped
                self._steps += [change.step] * len(wrapped)
        super().show()

    @property
    def top_step(self) -> int | None:
        """The step whose diff is at the top."""
        at = round(self.scroll_y)
        return self._steps[at] if at < len(self._steps) else None


class Files(Vertical):
    """The area at the upper right: a list above (but not for a step), diffs below."""

    BINDINGS = bindings("files")

    class Chosen(Message):
        """Go to a step."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source: RolloutSource | None = None
        self.view: View = "step"
        self.step = 0
        self._path = ""

    def compose(self) -> ComposeResult:
        """A list and diffs."""
        yield FileList(id="file-list")
        yield DiffText(id="diffs")

    def on_mount(self) -> None:
        """Begin with the step at the cursor."""
        self._dress()

    def open(self, source: RolloutSource) -> None:
        """Show another rollout."""
        self.source, self.step, self._path = source, 0, ""
        self.query_one(FileList).cursor = 0

    async def refresh_content(self, step: int | None = None) -> None:
        """Read again what is shown; `step` is the one at the trajectory's cursor."""
        source = self.source
        self.step = self.step if step is None else step
        if source is None or not self.display or not self.is_on_screen:
            return
        listed, diffs = self.query_one(FileList), self.query_one(DiffText)
        if self.view == "step":
            changes = await source.step_changes(self.step) if self.step else []
            listed.take(())
        elif self.view == "files":
            listed.take(await source.files())
            changes = await source.file_changes(self._path) if self._path else []
        else:
            listed.take(await source.searches())
            changes = []
        if source is self.source:
            diffs.take(changes)
            self._dress()

    def _dress(self) -> None:
        listed, diffs = self.query_one(FileList), self.query_one(DiffText)
        listed.display = self.view != "step"
        diffs.display = self.view == "step" or bool(self._path and self.view == "files")
        listed.empty = line(span(f" no {self.view} yet", "dim"))
        diffs.empty = line(span(f" step {self.step} changed no file", "dim"))
        names = {"step": f"step {self.step}", "files": "files", "searches": "searches"}
        shown = [f"‹{name}›" if view == self.view else name for view, name in names.items()]
        title(self, "4 " + "  ".join(shown))
        subtitle(self, line(self._path) if self.view == "files" else ())
        diffs.refresh()
        listed.refresh()

    async def action_view(self, by: int) -> None:
        """Step, files, searches."""
        at = (VIEWS.index(self.view) + by) % len(VIEWS)
        inside = self.query_one(FileList).has_focus or self.query_one(DiffText).has_focus
        self.view, self._path = VIEWS[at], ""
        self.query_one(FileList).cursor = 0
        await self.refresh_content()
        if inside:
            self.take_focus()

    def take_focus(self) -> None:
        """Focus what can be moved in."""
        part: LineView = self.query_one(FileList)
        (self.query_one(DiffText) if not part.display else part).focus()

    async def action_choose(self) -> None:
        """From a file to its changes; from a search or a change to its step."""
        if self.query_one(DiffText).has_focus:
            at = self.query_one(DiffText).top_step
            if at is not None:
                self.post_message(self.Chosen(at))
            return
        row = self.query_one(FileList).under_cursor
        if isinstance(row, FileRow):
            self._path = row.path
            await self.refresh_content()
            self.query_one(DiffText).focus()
        elif row is not None:
            self.post_message(self.Chosen(row.step))

    async def action_back(self) -> None:
        """From the changes of a file to the list."""
        self._path = ""
        await self.refresh_content()
        self.take_focus()

    @property
    def is_on_screen(self) -> bool:
        """Whether anybody can see it."""
        return self.size.width > 0
