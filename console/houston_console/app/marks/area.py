"""The keys for bookmarks, notes and permalinks: around the transcript, on the cursor's step."""

from collections.abc import Callable, Coroutine
from typing import Any

from textual.containers import Vertical

from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.keys import bindings
from houston_console.app.link import Link
from houston_console.app.marks.listing import marks
from houston_console.app.marks.page import MarksPage
from houston_console.app.messages import AskLine, GoTo, Told, guarded, say
from houston_console.app.source import RolloutSource
from houston_console.app.transcript import places
from houston_console.app.transcript.transcript import Transcript
from houston_shared.person import myself
from houston_shared.store.queries import people
from houston_shared.wire import Bookmark


class Marks(ErrorBoundary, Vertical):
    """Around the transcript."""

    BINDINGS = bindings("marks")

    def __init__(
        self,
        transcript: Transcript,
        link: Link,
        source: Callable[[], RolloutSource | None],
        **arguments: Any,
    ) -> None:
        """source: the rollout that is open."""
        super().__init__(**arguments)
        self._transcript = transcript
        self._link = link
        self._source = source
        self._linked = ""

    def action_bookmark(self) -> None:
        """Mark the step at the cursor for everybody; again: take one's own mark away."""
        source = self._source()
        if source is not None:
            self._later(self._toggle(source, self._transcript.cursor))

    async def _toggle(self, source: RolloutSource, step: int) -> None:
        me = myself(self._link.claimed).name
        found = await source.read(people.bookmarks(source.rollout))
        mine = any(one.step == step and one.author == me for one in found)
        await self._mark(source, step, "", mine)
        words = "Your bookmark is gone from" if mine else "Everybody sees your bookmark on"
        say(self, Told(f"{words} {_name(step)}.", good=True))

    async def _mark(self, source: RolloutSource, step: int, note: str, remove: bool) -> None:
        message = Bookmark(
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
                self._later(self._note(source, step, text))

        say(self, AskLine(f"note on {_name(step)}, for everybody", answer))

    async def _note(self, source: RolloutSource, step: int, text: str) -> None:
        await self._mark(source, step, text, False)
        say(self, Told(f"Everybody sees your note on {_name(step)}.", good=True))

    def action_marks(self) -> None:
        """List bookmarks and notes of everybody."""
        source = self._source()
        if source is not None:
            self._later(self._list(source))

    async def _list(self, source: RolloutSource) -> None:
        found = marks(
            await source.read(people.bookmarks(source.rollout)),
            await source.read(people.notes(source.rollout)),
        )
        self.app.push_screen(MarksPage(found), self._went)

    def _went(self, step: int | None) -> None:
        if step is not None:
            say(self, GoTo(step))

    def action_permalink(self) -> None:
        """Copy the step's permalink; pressed again, the command that shows the step."""
        source, step = self._source(), self._transcript.cursor
        if source is None:
            return
        if not step:
            say(self, Told("Only steps have a permalink: go to one first."))
            return
        link = places.link(source.rollout, step)
        again = self._linked == link
        self._linked = "" if again else link
        what = "the command" if again else "the permalink (again: the command)"
        copy: Any = self.app
        copy.put_into_clipboard(what, places.command(source.rollout, step) if again else link)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what waits for the daemon or the database; no key waits for it."""
        self.run_worker(guarded(self, work), group="marks")


def _name(step: int) -> str:
    return f"step {step}" if step else "the rollout"
