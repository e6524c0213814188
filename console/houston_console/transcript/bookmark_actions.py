"""Bookmarks, notes and permalinks: the keys around the transcript, and the page that lists them.

Acts on the step at the transcript's cursor and sends requests to the daemon. Verdicts are in
`transcript.verdict_actions`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import bindings_for
from houston_console.screens.base_screen import (
    AskForLine,
    GoToStep,
    Pane,
    post_from,
)
from houston_console.transcript.step_rendering import StepMark, list_marks, mark_line
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets.dialogs import Dialog
from houston_console.widgets.line_view import (
    ItemList,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.styled_text import TextLine, line, span
from houston_shared.command_arguments import format_permalink
from houston_shared.store import annotation_queries
from houston_shared.store.presence_queries import current_person
from houston_shared.wire import BookmarkStep

NO_MARKS_TEXT = " Nobody has left a bookmark (m) or a note (;) here."


class MarkList(ItemList[StepMark]):
    """One line a bookmark or note."""

    def __init__(self, marks: Sequence[StepMark], **arguments: Any) -> None:
        super().__init__(marks, **arguments)
        self.empty = line(span(NO_MARKS_TEXT, "dim"))

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        return mark_line(self.items[number], self.line_cells)


class MarksDialog(Dialog[int | None]):
    """Answers with the step that was chosen."""

    BINDINGS = [("escape,q,L", "close", "close"), ("enter", "choose", "go there")]

    def __init__(self, marks: Sequence[StepMark]) -> None:
        super().__init__()
        self.marks = MarkList(marks)

    def compose(self) -> ComposeResult:
        """Compose the frame and its list."""
        with Vertical(id="said") as box:
            set_frame_title(box, "Bookmarks and notes of everybody")
            set_frame_subtitle(box, line("enter go there   esc close"))
            yield self.marks

    def action_choose(self) -> None:
        """Go to the step."""
        mark = self.marks.under_cursor
        self.dismiss(mark.step if mark else None)


class BookmarkActions(Pane):
    """The keys for bookmarks, notes and permalinks, around the transcript."""

    BINDINGS = bindings_for("marks")

    def __init__(
        self,
        transcript: Transcript,
        link: DaemonLink,
        source: Callable[[], RolloutSource | None],
        **arguments: Any,
    ) -> None:
        """source: the rollout that is open."""
        super().__init__(**arguments)
        self._transcript = transcript
        self._link = link
        self._source = source
        self._copied_link = ""

    def action_bookmark(self) -> None:
        """Mark the step at the cursor for everybody; again: take one's own mark away."""
        source = self._source()
        if source is not None:
            self.run_reporting(self._toggle_bookmark(source, self._transcript.cursor), "marks")

    async def _toggle_bookmark(self, source: RolloutSource, step: int) -> None:
        me = current_person(self._link.claimed).name
        bookmarks = await source.read(annotation_queries.list_bookmarks(source.rollout))
        mine = any(bookmark.step == step and bookmark.author == me for bookmark in bookmarks)
        await self._mark(source, step, "", mine)
        words = "Your bookmark is gone from" if mine else "Everybody sees your bookmark on"
        self.show_notice(f"{words} {_step_name(step)}.", good=True)

    async def _mark(self, source: RolloutSource, step: int, note: str, remove: bool) -> None:
        message = BookmarkStep(
            rollout=source.rollout, step=step, note=note, remove=remove, claimed=self._link.claimed
        )
        await self._link.ask(message)

    def action_note(self) -> None:
        """Leave a note on the step at the cursor, for everybody."""
        source, step = self._source(), self._transcript.cursor
        if source is None:
            return

        async def answer(text: str) -> None:
            if text:
                self.run_reporting(self._leave_note(source, step, text), "marks")

        post_from(self, AskForLine(f"note on {_step_name(step)}, for everybody", answer))

    async def _leave_note(self, source: RolloutSource, step: int, text: str) -> None:
        await self._mark(source, step, text, False)
        self.show_notice(f"Everybody sees your note on {_step_name(step)}.", good=True)

    def action_marks(self) -> None:
        """List bookmarks and notes of everybody."""
        source = self._source()
        if source is not None:
            self.run_reporting(self._open_list(source), "marks")

    async def _open_list(self, source: RolloutSource) -> None:
        marks = list_marks(
            await source.read(annotation_queries.list_bookmarks(source.rollout)),
            await source.read(annotation_queries.list_notes(source.rollout)),
        )
        self.app.push_screen(MarksDialog(marks), self._go_to_mark)

    def _go_to_mark(self, step: int | None) -> None:
        if step is not None:
            post_from(self, GoToStep(step))

    def action_permalink(self) -> None:
        """Copy the step's permalink; pressed again, the command that shows the step."""
        source, step = self._source(), self._transcript.cursor
        if source is None:
            return
        if not step:
            self.show_notice("Only steps have a permalink: go to one first.")
            return
        link = format_permalink(source.rollout, step)
        again = self._copied_link == link
        self._copied_link = "" if again else link
        what = "the command" if again else "the permalink (again: the command)"
        copy: Any = self.app
        copy.copy_in_background(what, f"houston steps {link} --full" if again else link)


def _step_name(step: int) -> str:
    return f"step {step}" if step else "the rollout"
