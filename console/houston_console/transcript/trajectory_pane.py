"""The pane in the centre: the transcript and the ways through it.

Puts the transcript inside the actions for verdicts, bookmarks and search, asks for a place to go
to, jumps to the nearest step of a kind, and opens the prompt inspector. Bookmarks, notes and
permalinks are here, with the page that lists them; verdicts are in `transcript.verdict_actions`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import bindings_for
from houston_console.app.undo_offers import UndoOffers
from houston_console.screens.base_screen import (
    AskForLine,
    GoToStep,
    HoustonScreen,
    OpenPromptInspector,
    Pane,
    post_message_as,
)
from houston_console.screens.rollout_lists import LAST_KNOWN_TEXT, ending_text, name_within_task
from houston_console.transcript import trajectory_reader
from houston_console.transcript.rollout_gutter import RolloutGutter
from houston_console.transcript.step_rendering import StepMark, list_marks, mark_line
from houston_console.transcript.trajectory_reader import RolloutSource, StepTarget
from houston_console.transcript.transcript_search import TranscriptSearch
from houston_console.transcript.transcript_view import Transcript
from houston_console.transcript.verdict_actions import VerdictActions
from houston_console.widgets.dialogs import BottomPrompt, Dialog
from houston_console.widgets.line_view import set_frame_subtitle, set_frame_title
from houston_console.widgets.list_filter import FilteredList
from houston_console.widgets.styled_text import LOADING_LINE, TextLine, line, span
from houston_shared.command_arguments import format_permalink
from houston_shared.store import annotation_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.presence_queries import current_person
from houston_shared.store.rollout_queries import RolloutRow, resolve_rollout_id
from houston_shared.times_and_counts import now_us
from houston_shared.wire import BookmarkStep

NO_MARKS_TEXT = " Nobody has left a bookmark (m) or a note (;) here."


KINDS_OF_EQUALS = ("error", "tool")
"""Kinds of steps for which the line of equal failures is the place to be: all of them are it."""


class MarkList(FilteredList[StepMark]):
    """One line a bookmark or note."""

    def __init__(self, marks: Sequence[StepMark], **arguments: Any) -> None:
        super().__init__(marks, **arguments)
        self.empty = line(span(NO_MARKS_TEXT, "dim"))

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        return mark_line(self.items[number], self.line_cells)

    def filter_text(self, item: StepMark) -> str:
        """Step, author, and the note."""
        return f"{item.step} {item.author} {item.text}"


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

        post_message_as(self, AskForLine(f"note on {_step_name(step)}, for everybody", answer))

    async def _leave_note(self, source: RolloutSource, step: int, text: str) -> None:
        await self._mark(source, step, text, False)
        self.show_notice(f"Everybody sees your note on {_step_name(step)}.", good=True)

    def action_marks(self) -> None:
        """List bookmarks and notes of everybody."""
        source = self._source()
        if source is not None:
            self.run_before_keys(self._open_list(source), "marks")

    async def _open_list(self, source: RolloutSource) -> bool:
        marks = list_marks(
            await source.read(annotation_queries.list_bookmarks(source.rollout)),
            await source.read(annotation_queries.list_notes(source.rollout)),
        )
        self.app.push_screen(MarksDialog(marks), self._go_to_mark)
        return True

    def _go_to_mark(self, step: int | None) -> None:
        if step is not None:
            post_message_as(self, GoToStep(step))

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
        label = "the command" if again else "the permalink (again: the command)"
        copy: Any = self.app
        copy.copy_in_background(label, f"houston steps {link} --full" if again else link)


def _step_name(step: int) -> str:
    return f"step {step}" if step else "the rollout"


class TrajectoryPane(Pane):
    """One rollout's steps and the ways through them."""

    BINDINGS = bindings_for("find")

    def __init__(
        self, link: DaemonLink, undo_offers: UndoOffers, reader: AsyncReader, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.transcript = Transcript(id="transcript")
        self.bookmarks = BookmarkActions(self.transcript, link, lambda: self.source)
        self.verdicts = VerdictActions(self.transcript, link, undo_offers, lambda: self.source)
        self.prompt = BottomPrompt(self._answer_prompt, id="prompt")
        self.search = TranscriptSearch(
            self.transcript,
            link.home,
            lambda: (self.source, self._task_name),
            lambda: self.verdicts.clear_selection(),
            id="searching",
        )
        self._reader = reader
        self.source: RolloutSource | None = None
        self._task_name = ""
        self._lowest = 0
        """The step that a jump to the lowest process rewards last went to; 0 for none."""
        self._answer: Callable[[str], Awaitable[bool | None]] = self._go_to
        """What the line that is typed is for."""

    def compose(self) -> ComposeResult:
        """The transcript, and a line to type in that is hidden until it is asked for."""
        with self.search:
            with self.bookmarks, self.verdicts, Horizontal():
                yield self.transcript
                yield self.transcript.overview
            yield self.search.prompt
        yield self.prompt

    def on_mount(self) -> None:
        """Begin without a rollout."""
        set_frame_title(self, "2 Trajectory")
        self.transcript.empty = ()

    def on_resize(self) -> None:
        """The line to type in lies on the lower edge: nothing has to move for it."""
        self.prompt.styles.offset = (0, self.content_size.height)

    def switch_rollout(self, source: RolloutSource) -> None:
        """Let go of the rollout that is open; nothing of another was read yet."""
        self.source, self._lowest = source, 0
        self.search.leave_rollout()
        self.verdicts.clear_choice()
        self.transcript.clear()
        self.transcript.empty = LOADING_LINE

    async def open(self, source: RolloutSource, steps: int) -> None:
        """Show the rollout that was turned to."""
        await self.transcript.open(source, steps)
        self.search.mark_rollout()

    def update_titles(self, rollout: RolloutRow | None, down: bool) -> None:
        """Say in the frame what is open and where the cursor is, and why nothing goes on.

        down: whether there is no daemon, so that what runs is not known.
        """
        if rollout is None:
            return
        going = rollout.activity and rollout.state == "running" and not down
        now = f" · {rollout.activity}" if going else ""
        last = f" {LAST_KNOWN_TEXT}" if down and rollout.state == "running" else ""
        self._task_name = rollout.task
        name = name_within_task(rollout.id, rollout.task)
        set_frame_title(self, f"2 {rollout.task} · {name} · {rollout.state}{last}{now}")
        self.transcript.show_ending(*ending_text(rollout))
        position = self.transcript.position()
        set_frame_subtitle(self, position)

    # --- what is typed -----------------------------------------------------------------------

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line of keys is the prompt's while somebody writes in it."""
        if self.prompt.has_focus and isinstance(self.screen, HoustonScreen):
            event.stop()
            self.screen.hints.show_area("words")

    def ask(self, kind: str) -> None:
        """Ask for something to search (`/`) or a place to go to (`:`)."""
        if kind == "/":
            self.search.ask()
        else:
            self._answer = self._go_to
            self.prompt.ask(kind, trajectory_reader.PLACE_HELP)

    def on_ask_for_line(self, message: AskForLine) -> None:
        """A part of this area wants one line of text."""
        self._answer = message.answer
        self.prompt.ask(message.what, message.what)
        self.prompt.value = message.value

    def _answer_prompt(self, text: str) -> None:
        """What was typed. Keys wait: what follows a place is meant for what is there."""
        self.run_before_keys(self._answer(text), "answer")

    async def _go_to(self, text: str) -> bool:
        """Whether there is such a place. Raises HoustonError."""
        place = trajectory_reader.parse_step_target(text, self.transcript.cursor, now_us())
        if place is not None:
            return await self._show(place)
        if text:
            self.show_notice(f"{text!r} is not a place. Places: {trajectory_reader.PLACE_HELP}.")
        return not text

    async def _show(self, place: StepTarget) -> bool:
        if place.kind == "link":
            rollout_id = await self._reader.run(resolve_rollout_id(place.rollout))
            post_message_as(self, GoToStep(place.value, rollout_id))
        elif place.kind == "step":
            await self.transcript.go_to(place.value)
        elif place.kind == "percent":
            await self.transcript.go_to(round(self.transcript.steps * place.value / 100))
        elif self.source is not None:
            step = await self.source.at_time(place.kind, place.value)
            if step is None:
                self.show_notice("No step is that late.")
                return False
            await self.transcript.go_to(step)
        return True

    # --- jumps and the prompt inspector ------------------------------------------------------

    async def on_rollout_gutter_chosen(self, message: RolloutGutter.Chosen) -> None:
        """Go to the part of the rollout that was clicked."""
        await self.transcript.go_to(message.step, include_equal=True)

    async def action_nearest(self, kind: str, forward: bool) -> None:
        """The nearest step of a kind in `STEP_KINDS`, before or behind the line at the cursor."""
        if self.source is None:
            return
        first, last = self.transcript.folds.extent(self.transcript.cursor)
        step = await self.source.nearest(last if forward else first, kind, forward)
        if step is None:
            side = "after" if forward else "before"
            self.show_notice(
                f"No {trajectory_reader.STEP_KINDS[kind].word} {side} step"
                f" {self.transcript.cursor}."
            )
        else:
            await self.transcript.go_to(step, include_equal=kind in KINDS_OF_EQUALS)

    def action_lowest(self, back: bool) -> None:
        """The step with the lowest process reward; from there the next lowest, or back."""
        if self.source is not None:
            self.run_before_keys(self._go_to_lowest(self.source, back), "lowest")

    async def _go_to_lowest(self, source: RolloutSource, back: bool) -> bool:
        stands = self.transcript.cursor if self.transcript.cursor == self._lowest else 0
        step = await source.lowest(stands, back)
        if source is not self.source:
            return False
        if step is None:
            where = "lower than this one" if back else "higher than this one"
            self.show_notice(
                f"No step was scored {where}." if stands else "Begin with the lowest of all: <."
            )
            return False
        self._lowest = step
        await self.transcript.go_to(step)
        return True

    def action_inspect(self) -> None:
        """Exactly what the model was given at the step with the cursor."""
        if self.source is not None:
            post_message_as(self, OpenPromptInspector(max(1, self.transcript.cursor)))
