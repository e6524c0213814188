"""The area in the centre: the transcript and the ways through it: search, numbers, flags, eye."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from houston_console.app.dialogs import Prompt
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import line, span
from houston_console.app.eye.eye import Eye
from houston_console.app.judging.area import Judging
from houston_console.app.keys import bindings
from houston_console.app.link import Link
from houston_console.app.marks.area import Marks
from houston_console.app.messages import AskLine, Failed, GoTo, Told, say
from houston_console.app.rollouts.listing import LAST_KNOWN, ending, own_name
from houston_console.app.source import RolloutSource
from houston_console.app.transcript import places, ways
from houston_console.app.transcript.places import Place
from houston_console.app.transcript.searching import Search
from houston_console.app.transcript.transcript import Transcript
from houston_shared.clock import now_us
from houston_shared.errors import HoustonError
from houston_shared.store import context
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.queries.rollouts import Rollout, resolve


class TrajectoryArea(Vertical):
    """One rollout's steps and the ways through them."""

    BINDINGS = bindings("find")

    class Hits(Message):
        """A search has found more; from its thread."""

        def __init__(self, search: Search, steps: list[int], done: bool) -> None:
            super().__init__()
            self.search = search
            self.steps = steps
            self.done = done

    def __init__(self, link: Link, reader: AsyncReader, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.transcript = Transcript(id="transcript")
        self.marks = Marks(self.transcript, link, lambda: self.source)
        self.judging = Judging(self.transcript, link, lambda: self.source)
        self.prompt = Prompt(id="prompt", select_on_focus=False)
        self._home = link.home
        self._reader = reader
        self.source: RolloutSource | None = None
        self.search: Search | None = None
        self.searching = ""
        """A mark for a count that still grows."""
        self._jumped = False
        self._answer: Callable[[str], Awaitable[None]] = self._go_to
        """What the line that is typed is for."""

    def compose(self) -> ComposeResult:
        """The transcript, and a line to type in that is hidden until it is asked for."""
        with self.marks, self.judging:
            yield self.transcript
        yield self.prompt

    def on_mount(self) -> None:
        """Nothing is open yet."""
        title(self, "2 Trajectory")
        self.transcript.empty = ()

    def on_unmount(self) -> None:
        """Let no search go on without a screen."""
        if self.search is not None:
            self.search.stop()

    def turn_to(self, source: RolloutSource) -> None:
        """Let go of the rollout that is open; nothing of another was read yet."""
        self.end_search()
        self.source = source
        self.judging.turn()
        self.transcript.clear()
        self.transcript.empty = line(span(" being read …", "dim"))

    async def open(self, source: RolloutSource, steps: int) -> None:
        """Show the rollout that was turned to."""
        await self.transcript.open(source, steps)

    def dress(self, rollout: Rollout | None, down: bool) -> None:
        """Say in the frame what is open and where the cursor is, and why nothing goes on.

        down: whether there is no daemon, so that what runs is not known.
        """
        if rollout is None:
            return
        going = rollout.activity and rollout.state == "running" and not down
        now = f" · {rollout.activity}" if going else ""
        last = f" {LAST_KNOWN}" if down and rollout.state == "running" else ""
        name = own_name(rollout.id, rollout.task)
        title(self, f"2 {rollout.task} · {name} · {rollout.state}{last}{now}")
        self.transcript.end_with(*ending(rollout))
        position = self.transcript.position(self.searching)
        subtitle(self, position)

    # --- search ------------------------------------------------------------------------------

    def ask(self, kind: str) -> None:
        """Ask for words (`/`) or a step's number (`:`)."""
        self._answer = self._search_for if kind == "/" else self._go_to
        self.prompt.ask(kind, 'words, "a phrase"' if kind == "/" else places.HELP)

    def on_ask_line(self, message: AskLine) -> None:
        """A part of this area wants one line of text."""
        self._answer = message.answer
        self.prompt.ask(message.what, message.what)
        self.prompt.value = message.value

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """What was asked for."""
        self.prompt.action_leave()
        try:
            await self._answer(event.value.strip())
        except HoustonError as problem:
            say(self, Failed(problem))

    async def _search_for(self, text: str) -> None:
        self.start_search(text)

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

    def start_search(self, words: str) -> None:
        """Find steps, in a thread; the first hits move the cursor."""
        self.end_search()
        if self.source is None or not words:
            return
        self.search = Search(
            self._home,
            self.source.rollout,
            words,
            self._found,
            self._search_failed,
        )
        self._jumped, self.searching = False, "…"
        self.transcript.mark([term.text for term in self.search.terms], words)
        self.search.start()

    def _found(self, search: Search, steps: list[int], done: bool) -> None:
        """In the thread of the search; posting is safe there."""
        say(self, self.Hits(search, steps, done))

    def _search_failed(self, search: Search, problem: HoustonError) -> None:
        say(self, Failed(problem))

    def end_search(self) -> None:
        """Stop looking and show no hits."""
        if self.search is not None:
            self.search.stop()
            self.search, self.searching = None, ""
            self.transcript.mark([], "")
            if self.transcript.folds.filtered:
                self.transcript.filter(None)

    def action_clear(self) -> None:
        """Choose no steps any more, show all of them again, end the search: one after the other."""
        if self.judging.bench.anchor:
            self.judging.turn()
        elif self.transcript.folds.filtered:
            self.transcript.filter(None)
        else:
            self.end_search()

    def action_filter(self) -> None:
        """Show only the steps that the search found, or all again."""
        if self.transcript.folds.filtered:
            self.transcript.filter(None)
        elif self.transcript.hits:
            self.transcript.filter(self.transcript.hits)
        else:
            say(self, Told("Search first (/): then only the steps that were found are shown."))

    async def on_trajectory_area_hits(self, message: Hits) -> None:
        """More was found."""
        if message.search is not self.search:
            return
        transcript = self.transcript
        transcript.hits = message.steps
        if transcript.folds.filtered:
            transcript.filter(message.steps)
        self.searching = "" if message.done else "…"
        say(transcript, Transcript.Moved())
        if message.steps and not self._jumped:
            self._jumped = True
            after = [step for step in message.steps if step >= transcript.cursor]
            await self._show_hit(after[0] if after else message.steps[-1])
        elif message.done and not message.steps:
            say(self, Told(f"No step holds {message.search.query!r}."))

    async def action_hit(self, by: int) -> None:
        """The next hit or the one before, round the end."""
        transcript = self.transcript
        if not transcript.hits:
            return
        at = transcript.cursor
        after = [hit for hit in transcript.hits if (hit > at if by > 0 else hit < at)]
        rest = after or transcript.hits
        await self._show_hit(rest[0] if by > 0 else rest[-1])

    async def _show_hit(self, step: int) -> None:
        transcript = self.transcript
        await transcript.go_to(step, open=True)
        transcript.reveal_match(step)

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

    async def action_eye(self) -> None:
        """Exactly what the model was given at the step with the cursor."""
        step = max(1, self.transcript.cursor)
        if self.source is None:
            return
        try:
            request = await self._reader.run(context.at(self.source.rollout, step))
            view = await asyncio.to_thread(context.complete, request)
        except HoustonError as problem:
            say(self, Failed(problem))
        else:
            await self.app.push_screen(Eye(view, step))
