"""The area in the centre: the transcript and the ways through it: search, numbers, flags, eye."""

from collections.abc import Awaitable, Callable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.dialogs import Prompt
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import UNREAD
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.judging.area import Judging
from houston_console.app.keys import bindings
from houston_console.app.link import Link
from houston_console.app.marks.area import Marks
from houston_console.app.messages import AskLine, GoTo, OpenEye, Told, guarded, say
from houston_console.app.rollouts.listing import LAST_KNOWN, ending, own_name
from houston_console.app.screen import HoustonScreen
from houston_console.app.search.area import Searching
from houston_console.app.source import RolloutSource
from houston_console.app.transcript import places, ways
from houston_console.app.transcript.places import Place
from houston_console.app.transcript.transcript import Transcript
from houston_console.app.undoing import Undoing
from houston_shared.clock import now_us
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.queries.rollouts import Rollout, resolve


class TrajectoryArea(ErrorBoundary, Vertical):
    """One rollout's steps and the ways through them."""

    BINDINGS = bindings("find")

    def __init__(self, link: Link, undoing: Undoing, reader: AsyncReader, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.transcript = Transcript(id="transcript")
        self.marks = Marks(self.transcript, link, lambda: self.source)
        self.judging = Judging(self.transcript, link, undoing, lambda: self.source)
        self.prompt = Prompt(self._take, id="prompt")
        self.searching = Searching(
            self.transcript,
            link.home,
            lambda: (self.source, self._task_name),
            lambda: self.judging.unchoose(),
            id="searching",
        )
        self._reader = reader
        self.source: RolloutSource | None = None
        self._task_name = ""
        self._answer: Callable[[str], Awaitable[None]] = self._go_to
        """What the line that is typed is for."""

    def compose(self) -> ComposeResult:
        """The transcript, and a line to type in that is hidden until it is asked for."""
        with self.searching:
            with self.marks, self.judging:
                yield self.transcript
            yield self.searching.prompt
        yield self.prompt

    def on_mount(self) -> None:
        """Nothing is open yet."""
        title(self, "2 Trajectory")
        self.transcript.empty = ()

    def on_resize(self) -> None:
        """The line to type in lies on the lower edge: nothing has to move for it."""
        self.prompt.styles.offset = (0, self.content_size.height)

    def turn_to(self, source: RolloutSource) -> None:
        """Let go of the rollout that is open; nothing of another was read yet."""
        self.source = source
        self.searching.turned()
        self.judging.turn()
        self.transcript.clear()
        self.transcript.empty = UNREAD

    async def open(self, source: RolloutSource, steps: int) -> None:
        """Show the rollout that was turned to."""
        await self.transcript.open(source, steps)
        self.searching.opened()

    def dress(self, rollout: Rollout | None, down: bool) -> None:
        """Say in the frame what is open and where the cursor is, and why nothing goes on.

        down: whether there is no daemon, so that what runs is not known.
        """
        if rollout is None:
            return
        going = rollout.activity and rollout.state == "running" and not down
        now = f" · {rollout.activity}" if going else ""
        last = f" {LAST_KNOWN}" if down and rollout.state == "running" else ""
        self._task_name = rollout.task
        name = own_name(rollout.id, rollout.task)
        title(self, f"2 {rollout.task} · {name} · {rollout.state}{last}{now}")
        self.transcript.end_with(*ending(rollout))
        position = self.transcript.position()
        subtitle(self, position)

    # --- what is typed -----------------------------------------------------------------------

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line of keys is the prompt's while somebody writes in it."""
        if event.widget is self.prompt and isinstance(self.screen, HoustonScreen):
            event.stop()
            self.screen.hints.area("words")

    def ask(self, kind: str) -> None:
        """Ask for something to search (`/`) or a place to go to (`:`)."""
        if kind == "/":
            self.searching.ask()
        else:
            self._answer = self._go_to
            self.prompt.ask(kind, places.HELP)

    def on_ask_line(self, message: AskLine) -> None:
        """A part of this area wants one line of text."""
        self._answer = message.answer
        self.prompt.ask(message.what, message.what)
        self.prompt.value = message.value

    def _take(self, text: str) -> None:
        """What was typed; nothing that is said meanwhile waits for the answer."""
        self.run_worker(guarded(self, self._answer(text)), group="answer")

    async def _go_to(self, text: str) -> None:
        """Raises HoustonError."""
        place = places.parse(text, self.transcript.cursor, now_us())
        if place is not None:
            await self._show(place)
        elif text:
            say(self, Told(f"{text!r} is no place. Places: {places.HELP}."))

    async def _show(self, place: Place) -> None:
        if place.kind == "link":
            found = await self._reader.run(resolve(place.rollout))
            say(self, GoTo(place.value, found))
        elif place.kind == "step":
            await self.transcript.go_to(place.value)
        elif self.source is not None:
            step = await self.source.at_time(place.kind, place.value)
            if step is None:
                say(self, Told("No step is that late."))
            else:
                await self.transcript.go_to(step)

    # --- jumps and the eye -------------------------------------------------------------------

    async def action_nearest(self, kind: str, forward: bool) -> None:
        """The nearest step of a kind in `ways.WAYS`."""
        if self.source is None:
            return
        step = await self.source.nearest(self.transcript.cursor, kind, forward)
        if step is None:
            side = "after" if forward else "before"
            say(self, Told(f"No {ways.WAYS[kind].word} {side} step {self.transcript.cursor}."))
        else:
            await self.transcript.go_to(step)

    def action_eye(self) -> None:
        """Exactly what the model was given at the step with the cursor."""
        if self.source is not None:
            say(self, OpenEye(max(1, self.transcript.cursor)))
