"""The strip above the trajectory: what happened since this person was here, and who is here too.

It takes no line of the screen when there is nothing to say.
"""

from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, block, line, span
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.keys import bindings, shown
from houston_console.app.messages import Failed, GoTo, Told, say
from houston_console.app.people.lines import ago, others, unread, who
from houston_console.app.rollouts.selector import Facts
from houston_console.app.since.lines import Entry, Visit, entries, nothing, strip
from houston_console.app.since.walking import Walk
from houston_shared.clock import now_us
from houston_shared.errors import HoustonError
from houston_shared.need import Standing
from houston_shared.person import Person
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.looks import IDLE_US
from houston_shared.store.queries import looking, since
from houston_shared.store.queries.looking import Seen

NOTE_LINES = 3
"""Of a note of who was here before."""


class SinceList(LineView):
    """Everything that happened; enter leads to its step."""

    BINDINGS = bindings("since")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.entries: list[Entry] = []

    def line_count(self) -> int:
        """Heads and events."""
        return len(self.entries)

    def line_at(self, number: int) -> Line:
        """One of them."""
        return self.entries[number].line

    def selectable(self, number: int) -> bool:
        """All but heads."""
        return not self.entries[number].head

    def take(self, found: list[Entry]) -> None:
        """Show these, from the start."""
        self.entries, self.cursor = found, 0
        self.show()
        if found:
            self.put_cursor(0)

    def reveal(self, number: int) -> None:
        """As every list, but with its first head, and not before there is room for any line."""
        if self.size.height:
            super().reveal(0 if number <= 1 else number)

    def on_resize(self) -> None:
        """There is room now, or another."""
        super().on_resize()
        self.reveal(self.cursor)

    def action_choose(self) -> None:
        """Go to the step."""
        if self.entries and self.entries[self.cursor].step:
            say(self, GoTo(self.entries[self.cursor].step))

    def on_click(self, event: Any) -> None:
        """A click goes there."""
        super().on_click(event)
        self.action_choose()


class SinceArea(ErrorBoundary, Vertical):
    """People, a note, a line of what happened, and all of it when it is unfolded."""

    class Read(Message):
        """What happened, and since when, is known."""

    def __init__(self, reader: AsyncReader, person: Person, **arguments: Any) -> None:
        """reader: one that no key waits for. person: who sits here."""
        super().__init__(**arguments)
        self.people, self.line = Facts(id="people"), Facts(id="since-line")
        self.list = SinceList(id="since-list")
        self.visit: Visit | None = None
        self._reader, self._person = reader, person
        self._shown_seq, self._shown_at = 0, now_us()
        """The newest event that was shown when a key was last pressed here, and when that was."""
        self._missed: tuple[int, int] | None = None
        """The same two of before a long silence; None before the first."""
        self._walk = Walk(())
        self._rollout = ""
        self._seen: Seen | None = None
        self._hidden = False
        self._known, self._wanted = False, False
        """Whether it was read; whether somebody has asked for all of it before that."""

    def compose(self) -> ComposeResult:
        """Three parts, none of which is there without something to say."""
        yield self.people
        yield self.line
        yield self.list

    def on_mount(self) -> None:
        """Nothing is open yet."""
        for part in (self.people, self.line, self.list):
            part.display = False

    # --- what is read ------------------------------------------------------------------------

    def turn_to(self, rollout: str) -> None:
        """Another rollout: nothing of it is known yet."""
        self._rollout, self._seen = rollout, None
        self._show(None)
        self._known = self._wanted = False
        self.people.display = False

    def open(self, seq: int) -> None:
        """The rollout that was turned to is shown up to the event `seq`."""
        self._missed = None
        self._shown_seq, self._shown_at = seq, now_us()
        self.run_worker(self._read(self._rollout), group="since", exclusive=True)

    def pressed(self, seq: int) -> None:
        """A key, with everything up to the event `seq` shown; the first one after a long silence
        is of somebody who comes back.
        """
        now = now_us()
        if now - self._shown_at > IDLE_US:
            self._missed = (self._shown_seq, self._shown_at)
            self.run_worker(self._read(self._rollout), group="since", exclusive=True)
        self._shown_seq, self._shown_at = seq, now

    async def _read(self, rollout: str) -> None:
        try:
            if self._missed is not None:
                await self._read_after(rollout, *self._missed)
            else:
                await self._read_seen(rollout)
        except HoustonError as problem:
            say(self, Failed(problem))
        else:
            say(self, self.Read())

    async def _read_seen(self, rollout: str) -> None:
        seen = await self._reader.run(looking.last_seen(rollout, self._person))
        if rollout != self._rollout:
            return
        self._seen = seen
        if seen is not None:
            await self._read_after(rollout, seen.seq, seen.at)
        self._known = True
        if self._wanted and rollout == self._rollout:
            await self.unfold()

    async def _read_after(self, rollout: str, seq: int, at: int) -> None:
        """What happened behind the event `seq`, when somebody was here at `at`."""
        happened = await self._reader.run(since.happened(rollout, seq))
        if rollout == self._rollout:
            visit = Visit(happened, at)
            self._show(None if nothing(visit) else visit)

    def _show(self, visit: Visit | None) -> None:
        self.visit, self._hidden = visit, False
        self._walk = Walk(visit.happened.events if visit else ())
        self.list.display = False
        self._dress()

    # --- what is shown -----------------------------------------------------------------------

    def _dress(self) -> None:
        visit = self.visit
        self.line.display = visit is not None and not self._hidden
        if visit is not None:
            open, named = self.list.display, (shown("whole", "since"), shown("whole", "walk(1)"))
            self.line.put(lambda width: [strip(visit, now_us(), width, open, named)])

    def stand(self, found: Standing | None, me: str) -> None:
        """Who else is here and who looks after it, and a note that was not read yet."""
        here = found is not None and found.rollout.id == self._rollout
        note = unread(found.holding, self._seen, me) if found and here else None
        shown = bool(
            found and here and (others(found, me) or (found.holding and found.holding.holder))
        )
        self.people.display = shown or note is not None
        if found is not None and self.people.display:
            self.people.put(partial(_people, found, self._seen, me))
            self.people.styles.height = max(1, len(self.people.lines))

    def on_resize(self) -> None:
        """A note is wrapped for the width there is; the list for its own."""
        self.people.styles.height = max(1, len(self.people.lines))
        self._fill()

    def _fill(self) -> None:
        if self.visit is not None and self.list.display:
            at = self.list.cursor
            found = entries(self.visit, now_us(), self.list.room)
            self.list.styles.height = min(len(found) + 1, self.screen.size.height * 2 // 5)
            self.list.take(found)
            self.list.put_cursor(at)

    async def unfold(self) -> bool:
        """Show all of it, or fold it; whether it is shown now."""
        if self.list.display:
            self.list.display = False
            self._dress()
            return False
        if not self._known:
            self._wanted = True
            return False
        if self.visit is None:
            await self._read_all()
        if self.visit is None:
            return False
        self._hidden, self.list.display = False, True
        self._dress()
        self.list.cursor = 0
        self._fill()
        self.list.focus()
        return True

    async def _read_all(self) -> None:
        """Who was never here, or missed nothing, may still ask for everything."""
        if self._seen is not None:
            words = f"Nothing happened since you were here {ago(self._seen.at, now_us())}."
            say(self, Told(words))
            return
        try:
            await self._read_after(self._rollout, 0, 0)
        except HoustonError as problem:
            say(self, Failed(problem))
        else:
            if self.visit is None:
                say(self, Told("Nothing has happened yet."))

    # --- the walk ----------------------------------------------------------------------------

    def walk(self, by: int, step: int) -> int:
        """The step of the next event, or of the one before; 0 for none, which is said."""
        if self.visit is None:
            key = shown("whole", "since")
            words = f"Nothing is new since you were here; {key} shows all that happened."
            say(self, Told(words))
            return 0
        stop = self._walk.go(by, step)
        if stop is None:
            say(
                self, Told("That was all since you were here." if by > 0 else "That was the first.")
            )
            if by > 0:
                self._hidden, self.list.display = True, False
                self._dress()
            return 0
        place = f"{self._walk.place + 1}/{len(self._walk.stops)}"
        say(self, Told(f"{place}  step {stop.step}, {ago(stop.at, now_us())}: {stop.text}", True))
        return stop.step


def _people(found: Standing, seen: Seen | None, me: str, width: int) -> list[Line]:
    """One line of who is here; under it a note that was not read."""
    now = now_us()
    here = [(mark, text) for mark, text in who(found, me, now) if mark != "✉"]
    rows = [line(*(span(f" {mark} {text}  ", "tool") for mark, text in here))] if here else []
    note = unread(found.holding, seen, me)
    if note is not None:
        text = f"{note.note_by} left a note {ago(note.note_at, now)}: {note.note}"
        wrapped = block(text, width - 3, "guidance_text")
        more = len(wrapped) > NOTE_LINES
        shown = (
            [*wrapped[: NOTE_LINES - 1], line(span("… in full under 1", "dim"))]
            if more
            else wrapped
        )
        rows += [(span("   " if at else " ✉ ", "guidance"), *row) for at, row in enumerate(shown)]
    return rows
