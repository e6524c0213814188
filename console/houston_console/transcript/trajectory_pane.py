"""The pane in the centre: the transcript and the ways through it.

Puts the transcript inside the actions for verdicts, bookmarks and search, asks for a place to go
to, jumps to the nearest step of a kind, and opens the prompt inspector.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from textual import events
from textual.app import ComposeResult

from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import bindings_for
from houston_console.app.undo_offers import UndoOffers
from houston_console.screens.base_screen import (
    AskForLine,
    GoToStep,
    HoustonScreen,
    OpenPromptInspector,
    Pane,
    post_from,
)
from houston_console.screens.rollout_lists import LAST_KNOWN_TEXT, ending_text, name_within_task
from houston_console.transcript import trajectory_reader
from houston_console.transcript.bookmark_actions import BookmarkActions
from houston_console.transcript.trajectory_reader import RolloutSource, StepTarget
from houston_console.transcript.transcript_search import TranscriptSearch
from houston_console.transcript.transcript_view import Transcript
from houston_console.transcript.verdict_actions import VerdictActions
from houston_console.widgets.dialogs import BottomPrompt
from houston_console.widgets.line_view import set_frame_subtitle, set_frame_title
from houston_console.widgets.styled_text import LOADING_LINE
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.rollout_queries import RolloutRow, resolve_rollout_id
from houston_shared.times_and_counts import now_us


class TrajectoryPane(Pane):
    """One rollout's steps and the ways through them."""

    BINDINGS = bindings_for("find")

    def __init__(
        self, link: DaemonLink, undoing: UndoOffers, reader: AsyncReader, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.transcript = Transcript(id="transcript")
        self.bookmarks = BookmarkActions(self.transcript, link, lambda: self.source)
        self.verdicts = VerdictActions(self.transcript, link, undoing, lambda: self.source)
        self.prompt = BottomPrompt(self._answer_prompt, id="prompt")
        self.search = TranscriptSearch(
            self.transcript,
            link.home,
            lambda: (self.source, self._task_name),
            lambda: self.verdicts.unchoose(),
            id="searching",
        )
        self._reader = reader
        self.source: RolloutSource | None = None
        self._task_name = ""
        self._answer: Callable[[str], Awaitable[None]] = self._go_to
        """What the line that is typed is for."""

    def compose(self) -> ComposeResult:
        """The transcript, and a line to type in that is hidden until it is asked for."""
        with self.search:
            with self.bookmarks, self.verdicts:
                yield self.transcript
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
        self.source = source
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
        if event.widget is self.prompt and isinstance(self.screen, HoustonScreen):
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
        """What was typed; nothing that is said meanwhile waits for the answer."""
        self.run_reporting(self._answer(text), "answer")

    async def _go_to(self, text: str) -> None:
        """Raises HoustonError."""
        place = trajectory_reader.parse_step_target(text, self.transcript.cursor, now_us())
        if place is not None:
            await self._show(place)
        elif text:
            self.show_notice(f"{text!r} is no place. Places: {trajectory_reader.PLACE_HELP}.")

    async def _show(self, place: StepTarget) -> None:
        if place.kind == "link":
            rollout_id = await self._reader.run(resolve_rollout_id(place.rollout))
            post_from(self, GoToStep(place.value, rollout_id))
        elif place.kind == "step":
            await self.transcript.go_to(place.value)
        elif self.source is not None:
            step = await self.source.at_time(place.kind, place.value)
            if step is None:
                self.show_notice("No step is that late.")
            else:
                await self.transcript.go_to(step)

    # --- jumps and the eye -------------------------------------------------------------------

    async def action_nearest(self, kind: str, forward: bool) -> None:
        """The nearest step of a kind in `STEP_KINDS`."""
        if self.source is None:
            return
        step = await self.source.nearest(self.transcript.cursor, kind, forward)
        if step is None:
            side = "after" if forward else "before"
            self.show_notice(
                f"No {trajectory_reader.STEP_KINDS[kind].word} {side} step"
                f" {self.transcript.cursor}."
            )
        else:
            await self.transcript.go_to(step)

    def action_eye(self) -> None:
        """Exactly what the model was given at the step with the cursor."""
        if self.source is not None:
            post_from(self, OpenPromptInspector(max(1, self.transcript.cursor)))
