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
    BackgroundRange,
    DrawnLine,
    ParsedChange,
    agent_search_line,
    change_lines,
    file_change_line,
    file_line,
    parse_change,
    result_lines,
)
from houston_console.screens.base_screen import GoToStep, Pane, post_message_as
from houston_console.screens.rollout_lists import ListAttention, keep_order
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.widgets.line_view import (
    LineView,
    highlight_needles,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.list_filter import FilteredList
from houston_console.widgets.styled_text import LOADING_LINE, TextLine, line, span, text_block
from houston_shared.errors import HoustonError
from houston_shared.store import journal_events, workspace_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.workspace_queries import (
    MAX_STEP_DIFFS,
    FileEditRow,
    FileHistoryRow,
    SearchRow,
)
from houston_shared.times_and_counts import pluralize


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
    """The diffs or the result below the list."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.changes: Sequence[ParsedChange] = ()
        self.result: tuple[SearchRow, str] | None = None
        self.side_by_side: bool | None = None
        """Old and new beside each other; None for where there is room."""
        self._drawn_lines: list[DrawnLine] = []
        self._steps: list[int] = []
        self._drawn_shape: tuple[int, bool] = (0, False)

    def line_count(self) -> int:
        """Lines of all diffs."""
        return len(self._drawn_lines)

    def line_at(self, number: int) -> TextLine:
        """One line of a diff."""
        return self._drawn_lines[number].line

    @property
    def is_side_by_side(self) -> bool:
        """Whether old and new stand side by side now."""
        if self.side_by_side is None:
            return self.line_cells >= SIDE_BY_SIDE_MIN_CELLS
        return self.side_by_side

    def show_changes(
        self, changes: Sequence[ParsedChange] = (), result: tuple[SearchRow, str] | None = None
    ) -> None:
        """Show other diffs, or a result, from the start."""
        if (changes, result) != (self.changes, self.result):
            self.changes, self.result, self._drawn_shape = changes, result, (0, False)
            self.show()
            self.jump(0)

    def show(self) -> None:
        """Make the lines for the width there is."""
        shape = (self.line_cells, self.is_side_by_side)
        if self._drawn_shape != shape:
            self._drawn_shape = shape
            self._drawn_lines, self._steps = [], []
            if self.result is not None:
                self._append_lines(self.result[0].step, result_lines(*self.result, self.line_cells))
            for change in self.changes:
                self._append_lines(change.edit.step, change_lines(change, *shape))
        super().show()

    def _append_lines(self, step: int, lines: list[DrawnLine]) -> None:
        room = MAX_DIFF_LINES - len(self._drawn_lines)
        if len(lines) > room:
            words = f"… {len(lines) - room:,} more lines: `houston files` shows all"
            lines = [
                *lines[:room],
                *(DrawnLine(row) for row in text_block(words, self.line_cells, "dim")),
            ]
        self._drawn_lines += lines if room > 0 else []
        self._steps += [step] * (len(self._drawn_lines) - len(self._steps))

    def render_line(self, y: int) -> Strip:
        """One line of the screen: backgrounds behind what changed, the words of a search marked."""
        strip = super().render_line(y)
        number = round(self.scroll_y) + y
        if number >= len(self._drawn_lines):
            return strip
        for background in self._drawn_lines[number].backgrounds:
            strip = _with_background(strip, background, self._style(background))
        if self.result is not None and number > 1:
            strip = highlight_needles(strip, strip.text, [self.result[0].query], self.palette.hit)
        return strip

    def _style(self, background: BackgroundRange) -> Style:
        return self.palette.added if background.kind == "+" else self.palette.removed

    @property
    def top_step(self) -> int | None:
        """The step of the line at the top."""
        at = round(self.scroll_y)
        return self._steps[at] if at < len(self._steps) else None

    def toggle_side_by_side(self) -> None:
        """Switch between side by side and one below the other."""
        self.side_by_side = not self.is_side_by_side
        self.show()
        self.refresh()

    def scroll_pages(self, by: float) -> None:
        """Scroll by so much of the height."""
        self.jump(round(self.scroll_y + by * max(1, self.size.height)))


def _with_background(strip: Strip, background: BackgroundRange, style: Style) -> Strip:
    """`strip` with another background, or colour, between two cells."""
    within = strip.crop(background.start, background.end)
    styled = [segment._replace(style=(segment.style or Style()) + style) for segment in within]
    return Strip.join([strip.crop(0, background.start), Strip(styled), strip.crop(background.end)])


FilesView = Literal["files", "searches"]
FILES_VIEWS: tuple[FilesView, ...] = ("files", "searches")
FileListItem = FileHistoryRow | FileEditRow | SearchRow


class FileList(FilteredList[FileListItem]):
    """The files of a rollout, the changes of one of them, or searches."""

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__([], **arguments)
        self.attention, self.is_order_held = ListAttention(), False
        """Who is here; whether the order would be another if nobody were."""

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        row = self.items[number]
        if isinstance(row, FileHistoryRow):
            return file_line(row, self.line_cells)
        if isinstance(row, FileEditRow):
            return file_change_line(row, self.line_cells)
        return agent_search_line(row, self.line_cells)

    def cursor_moved(self) -> None:
        """Tell the pane that the cursor moved."""
        post_message_as(self, self.Moved())

    def filter_text(self, item: FileListItem) -> str:
        """A path, or a query, and what stands beside it."""
        if isinstance(item, FileHistoryRow):
            return f"{item.path} {item.kind} {item.last_step}"
        if isinstance(item, FileEditRow):
            return f"{item.path} {item.kind} {item.step} {item.tools}"
        return f"{item.query} {item.kind} {item.step}"

    def show_rows(self, rows: Sequence[FileListItem]) -> None:
        """Show other rows, the cursor on its own; the same ones are not drawn again.

        Files keep their order while somebody moves through them: the one that changed last comes
        first some seconds later.
        """
        moves = self.has_focus and self.attention.is_moving
        wanted_rows, rows = (
            rows,
            keep_order(rows, self.all_items, _item_key) if moves else list(rows),
        )
        self.is_order_held = rows != list(wanted_rows)
        if rows != self.all_items:
            self.set_items(rows, _item_key)

    def note_activity(self) -> None:
        """Hold the order for some seconds."""
        self.attention.note_activity()


def _item_key(row: FileListItem) -> tuple[str, str | int]:
    """Equal for what is the same row, whatever it says by now."""
    if isinstance(row, FileHistoryRow):
        return "file", row.path
    return ("change", row.step) if isinstance(row, FileEditRow) else ("search", row.seq)


class FilesPane(Pane):
    """The pane at the upper right."""

    BINDINGS = bindings_for("files")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source: RolloutSource | None = None
        self.view: FilesView = "files"
        self.step = 0
        self._path = ""
        """The file whose changes are listed; empty for all files."""
        self._path_to_return_to = ""
        """The file whose changes were listed: the cursor goes back to it."""
        self._unread_files = 0
        """Files of the step whose diffs are not shown."""
        self._is_stale = False
        self._is_list_stale = True
        """Whether more is to be read than what belongs to the step at the trajectory's cursor."""
        self._was_read = False
        """Whether anything of the rollout was read."""
        self._reading: asyncio.Task[None] | None = None
        self.list, self.diffs = FileList(id="file-list"), DiffView(id="diffs")

    def compose(self) -> ComposeResult:
        """Compose the list and the diffs below it."""
        yield self.list
        yield self.diffs

    def on_mount(self) -> None:
        """Show the list of files."""
        self._update_titles()

    def switch_rollout(self, source: RolloutSource) -> None:
        """Show another rollout; nothing of it was read yet."""
        self.source, self.step, self._path, self._was_read = source, 0, "", False
        self._is_list_stale = True
        self.list.end_filter()
        self.list.show_rows(())
        self.diffs.show_changes()
        self._update_titles()

    def follow(self, step: int) -> None:
        """The trajectory's cursor is on another step; no key waits for what that reads."""
        if step != self.step:
            self.step = step
            self._read_soon(with_list=False)

    async def refresh_content(self, step: int | None = None) -> None:
        """Read again what is shown; `step` is the one at the trajectory's cursor."""
        self.step = self.step if step is None else step
        await self._read_soon()

    def _read_soon(self, with_list: bool = True) -> "asyncio.Task[None]":
        """One read at a time, and one more after it for all that was asked meanwhile."""
        self._is_stale = True
        self._is_list_stale = self._is_list_stale or with_list
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_while_stale())
        return self._reading

    async def _read_while_stale(self) -> None:
        while self._is_stale:
            self._is_stale = False
            try:
                await self._read()
            except HoustonError as problem:
                self._is_list_stale = True
                self.report_problem(problem)

    async def _read(self) -> None:
        source = self.source
        if source is None or self.size.width == 0:
            return  # nobody can see it
        with_list, self._is_list_stale = self._is_list_stale, False
        if not with_list:
            await self._refresh_below(source)
            self._update_titles()
            return
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
            self._was_read = True
            self.list.show_rows(rows)
            self._go_back()
            await self._refresh_below(source)
            self._update_titles()

    def _go_back(self) -> None:
        """To the file whose changes were listed, wherever it stands by now."""
        path, self._path_to_return_to = self._path_to_return_to, ""
        for at, row in enumerate(self.list.items if path else ()):
            if isinstance(row, FileHistoryRow) and row.path == path:
                self.list.set_cursor(at)

    def sort_when_idle(self) -> None:
        """Called once a second: in their own order again, where nobody moves through them."""
        if self.list.is_order_held and not self.list.attention.is_moving:
            self._read_soon()

    async def _refresh_below(self, source: RolloutSource) -> None:
        """What belongs to the row at the cursor, or to the step at the trajectory's."""
        under = self.list.under_cursor
        if self.view == "searches":
            if isinstance(under, SearchRow):
                text = await source.read(read_result_text(under.seq))
                self.diffs.show_changes(result=(under, text))
            else:
                self.diffs.show_changes()
            return
        if isinstance(under, FileEditRow):
            edits = [under]
        else:
            edits = await source.read(
                workspace_queries.list_file_edits_of_step(source.rollout, self.step)
            )
        self._unread_files = max(0, len(edits) - MAX_STEP_DIFFS)
        changes: list[ParsedChange] = []
        if edits:
            recorded = await source.read(workspace_queries.read_file_diffs(edits[:MAX_STEP_DIFFS]))
            changes = await asyncio.to_thread(lambda: [parse_change(edit) for edit in recorded])
        if source is self.source:
            self.diffs.show_changes(changes)

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

    def _update_titles(self) -> None:
        empty = line(span(f" no {self.view} yet", "dim")) if self._was_read else LOADING_LINE
        if empty != self.list.empty:
            self.list.empty = empty
            self.list.refresh()
        titles = [f"‹{view}›" if view == self.view else view for view in FILES_VIEWS]
        if self._path:
            titles = [f"‹{self._path}›", pluralize(len(self.list.all_items), "change")]
        set_frame_title(self, "4  " + "  ".join(titles))
        more = (
            f"{pluralize(self._unread_files, 'more file')} of this step"
            if self._unread_files
            else ""
        )
        set_frame_subtitle(self, line("esc all files" if self._path else more))

    async def action_view(self, by: int) -> None:
        """Switch between files and searches."""
        at = (FILES_VIEWS.index(self.view) + by) % len(FILES_VIEWS)
        self.view, self._path = FILES_VIEWS[at], ""
        self.list.end_filter()
        self.list.cursor = 0
        await self.refresh_content()
        self.list.focus()

    async def action_choose(self) -> None:
        """From a file to its changes; from a search or a change to its step."""
        row = self.list.under_cursor
        if self.diffs.has_focus:
            if self.diffs.top_step is not None:
                post_message_as(self, GoToStep(self.diffs.top_step))
        elif isinstance(row, FileHistoryRow):
            self._path, self.list.cursor = row.path, 0
            self.list.end_filter()
            await self.refresh_content()
        elif row is not None:
            post_message_as(self, GoToStep(row.step))

    async def action_back(self) -> None:
        """From the changes of a file to the list."""
        if self._path:
            self._path, self._path_to_return_to = "", self._path
            self.list.end_filter()
            await self.refresh_content()
        self.list.focus()

    def action_beside(self) -> None:
        """Old and new side by side, or one below the other."""
        self.diffs.toggle_side_by_side()

    def action_scroll(self, by: int) -> None:
        """Half a page on or back in the diff, while the list keeps the focus."""
        self.diffs.scroll_pages(by / 2)
