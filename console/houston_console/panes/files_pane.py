"""The files pane: files the agent changed, or its searches, and below the diffs or results.

While no file is chosen the diffs follow the step at the trajectory's cursor. Rendering is in
`panes.diff_rendering`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from rich.style import Style
from textual.app import ComposeResult
from textual.message import Message
from textual.strip import Strip

from houston_console.app.key_bindings import bindings_for
from houston_console.panes.diff_rendering import (
    SIDE_BY_SIDE_MIN_CELLS,
    DrawnLine,
    GroundRange,
    ParsedChange,
    agent_search_line,
    change_lines,
    file_change_line,
    file_line,
    parse_change,
    result_lines,
)
from houston_console.screens.base_screen import GoToStep, Pane, post_from
from houston_console.screens.rollout_lists import ListAttention, keep_order
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.widgets.line_view import (
    ItemList,
    LineView,
    highlight_needles,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.styled_text import LOADING_LINE, TextLine, line, span, text_block
from houston_shared.errors import HoustonError
from houston_shared.store import journal_events, workspace_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.workspace_queries import (
    MOST_STEP_DIFFS,
    FileEditRow,
    FileHistoryRow,
    SearchRow,
)


class _ResultText(msgspec.Struct, frozen=True):
    text: str = ""


def read_result_text(seq: int) -> ReadPlan[str]:
    """What one call returned, as the model saw it."""
    event = (yield from journal_events.events_by_seq([seq])).get(seq)
    if event is None:
        return ""
    erased = _ResultText(journal_events.ERASED_TEXT)
    return (yield from journal_events.read_event_record(event, _ResultText, erased)).text


MAX_DIFF_LINES = 4_000
"""Lines that are made at most; what is left out is said."""


class DiffView(LineView):
    """The lower half of files and searches."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.changes: Sequence[ParsedChange] = ()
        self.result: tuple[SearchRow, str] | None = None
        self.side_by_side: bool | None = None
        """Old and new beside each other; None for where there is room."""
        self._drawn: list[DrawnLine] = []
        self._steps: list[int] = []
        self._made_for: tuple[int, bool] = (0, False)

    def line_count(self) -> int:
        """Lines of all diffs."""
        return len(self._drawn)

    def line_at(self, number: int) -> TextLine:
        """One line of a diff."""
        return self._drawn[number].line

    @property
    def beside(self) -> bool:
        """Whether old and new stand side by side now."""
        return (
            self.room >= SIDE_BY_SIDE_MIN_CELLS if self.side_by_side is None else self.side_by_side
        )

    def take(
        self, changes: Sequence[ParsedChange] = (), result: tuple[SearchRow, str] | None = None
    ) -> None:
        """Show other diffs, or a result, from the start."""
        if (changes, result) != (self.changes, self.result):
            self.changes, self.result, self._made_for = changes, result, (0, False)
            self.show()
            self.jump(0)

    def show(self) -> None:
        """Make the lines for the width there is."""
        wanted = (self.room, self.beside)
        if self._made_for != wanted:
            self._made_for = wanted
            self._drawn, self._steps = [], []
            if self.result is not None:
                self._add(self.result[0].step, result_lines(*self.result, self.room))
            for one in self.changes:
                self._add(one.made.step, change_lines(one, *wanted))
        super().show()

    def _add(self, step: int, made: list[DrawnLine]) -> None:
        room = MAX_DIFF_LINES - len(self._drawn)
        if len(made) > room:
            words = f"… {len(made) - room:,} more lines: `houston files` shows all"
            made = [*made[:room], *(DrawnLine(row) for row in text_block(words, self.room, "dim"))]
        self._drawn += made if room > 0 else []
        self._steps += [step] * (len(self._drawn) - len(self._steps))

    def render_line(self, y: int) -> Strip:
        """One line of the screen: grounds behind what changed, the words of a search marked."""
        strip = super().render_line(y)
        number = round(self.scroll_y) + y
        if number >= len(self._drawn):
            return strip
        for ground in self._drawn[number].grounds:
            strip = _with_ground(strip, ground, self._style(ground))
        if self.result is not None and number > 1:
            strip = highlight_needles(strip, strip.text, [self.result[0].query], self.palette.hit)
        return strip

    def _style(self, ground: GroundRange) -> Style:
        return self.palette.added if ground.kind == "+" else self.palette.removed

    @property
    def top_step(self) -> int | None:
        """The step of what is at the top."""
        at = round(self.scroll_y)
        return self._steps[at] if at < len(self._steps) else None

    def toggle(self) -> None:
        """Side by side, or one below the other."""
        self.side_by_side = not self.beside
        self.show()
        self.refresh()

    def scroll_pages(self, by: float) -> None:
        """Scroll by so much of the height."""
        self.jump(round(self.scroll_y + by * max(1, self.size.height)))


def _with_ground(strip: Strip, ground: GroundRange, style: Style) -> Strip:
    """`strip` with another ground, or colour, between two cells."""
    within = strip.crop(ground.start, ground.end)
    styled = [one._replace(style=(one.style or Style()) + style) for one in within]
    return Strip.join([strip.crop(0, ground.start), Strip(styled), strip.crop(ground.end)])


FilesView = Literal["files", "searches"]
FILES_VIEWS: tuple[FilesView, ...] = ("files", "searches")
FileListItem = FileHistoryRow | FileEditRow | SearchRow


class FileList(ItemList[FileListItem]):
    """The files of a rollout, the changes of one of them, or searches."""

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__([], **arguments)
        self.reading, self.held = ListAttention(), False
        """Who is here; whether the order would be another if nobody were."""

    def line_at(self, number: int) -> TextLine:
        """One of them."""
        row = self.items[number]
        if isinstance(row, FileHistoryRow):
            return file_line(row, self.room)
        return (
            file_change_line(row, self.room)
            if isinstance(row, FileEditRow)
            else agent_search_line(row, self.room)
        )

    def moved(self) -> None:
        """Tell it."""
        post_from(self, self.Moved())

    def take(self, rows: Sequence[FileListItem]) -> None:
        """Show other rows, the cursor on its own; the same ones are not drawn again.

        Files keep their order while somebody moves through them: the one that changed last comes
        first some seconds later.
        """
        moves = self.has_focus and self.reading.moves
        wanted, rows = rows, keep_order(rows, self.items, _item_key) if moves else list(rows)
        self.held = rows != list(wanted)
        if rows != self.items:
            self.set_items(rows, _item_key)

    def touched(self) -> None:
        """Nothing changes the order for some seconds."""
        self.reading.touched()


def _item_key(row: FileListItem) -> tuple[str, str | int]:
    """Equal for what is the same row, whatever it says by now."""
    if isinstance(row, FileHistoryRow):
        return "file", row.path
    return ("change", row.step) if isinstance(row, FileEditRow) else ("search", row.seq)


class FilesPane(Pane):
    """The area at the upper right."""

    BINDINGS = bindings_for("files")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source: RolloutSource | None = None
        self.view: FilesView = "files"
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
        self.listed, self.below = FileList(id="file-list"), DiffView(id="diffs")

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
                self.report_problem(problem)

    async def _read(self) -> None:
        source = self.source
        if source is None or self.size.width == 0:
            return  # nobody can see it
        path, rollout = self._path, source.rollout
        if self.view == "searches":
            rows: Sequence[FileListItem] = await source.read(
                workspace_queries.list_newest_searches(rollout)
            )
        elif path:
            rows = await source.read(workspace_queries.list_file_edits(rollout, path))
        else:
            rows = await source.read(workspace_queries.list_changed_files(rollout))
        if source is self.source and path == self._path:
            self._known = True
            self.listed.take(rows)
            self._go_back(rows)
            await self._refresh_below(source)
            self._dress()

    def _go_back(self, rows: Sequence[FileListItem]) -> None:
        """To the file whose changes were listed, wherever it stands by now."""
        left, self._left = self._left, ""
        for at, row in enumerate(rows if left else ()):
            if isinstance(row, FileHistoryRow) and row.path == left:
                self.listed.put_cursor(at)

    def rest(self) -> None:
        """Called once a second: in their own order again, where nobody moves through them."""
        if self.listed.held and not self.listed.reading.moves:
            self._read_soon()

    async def _refresh_below(self, source: RolloutSource) -> None:
        """What belongs to the row at the cursor, or to the step at the trajectory's."""
        under = self.listed.under_cursor
        if self.view == "searches":
            if isinstance(under, SearchRow):
                text = await source.read(read_result_text(under.seq))
                self.below.take(result=(under, text))
            else:
                self.below.take()
            return
        if isinstance(under, FileEditRow):
            made = [under]
        else:
            made = await source.read(
                workspace_queries.list_file_edits_of_step(source.rollout, self.step)
            )
        self._unread = max(0, len(made) - MOST_STEP_DIFFS)
        found = await source.read(workspace_queries.read_file_diffs(made[:MOST_STEP_DIFFS]))
        changes = await asyncio.to_thread(lambda: [parse_change(one) for one in found])
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
            self.report_problem(problem)

    def _dress(self) -> None:
        empty = line(span(f" no {self.view} yet", "dim")) if self._known else LOADING_LINE
        if empty != self.listed.empty:
            self.listed.empty = empty
            self.listed.refresh()
        shown = [f"‹{view}›" if view == self.view else view for view in FILES_VIEWS]
        if self._path:
            shown = [f"‹{self._path}›", f"{len(self.listed.items)} changes"]
        set_frame_title(self, "4  " + "  ".join(shown))
        more = f"{self._unread} more files of this step" if self._unread else ""
        set_frame_subtitle(self, line("esc all files" if self._path else more))

    async def action_view(self, by: int) -> None:
        """Files or searches."""
        at = (FILES_VIEWS.index(self.view) + by) % len(FILES_VIEWS)
        self.view, self._path = FILES_VIEWS[at], ""
        self.listed.cursor = 0
        await self.refresh_content()
        self.listed.focus()

    async def action_choose(self) -> None:
        """From a file to its changes; from a search or a change to its step."""
        row = self.listed.under_cursor
        if self.below.has_focus:
            if self.below.top_step is not None:
                post_from(self, GoToStep(self.below.top_step))
        elif isinstance(row, FileHistoryRow):
            self._path, self.listed.cursor = row.path, 0
            await self.refresh_content()
        elif row is not None:
            post_from(self, GoToStep(row.step))

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
