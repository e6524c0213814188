"""The queue: what was said to an agent, and what became of it; what waits comes first."""

from typing import Any, Literal

from textual.message import Message

from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import UNREAD, Line, line, span
from houston_console.app.keys import bindings
from houston_console.app.messages import say
from houston_console.app.speaking.entries import Entry
from houston_console.app.speaking.lines import entry_line

What = Literal["withdraw", "edit", "go", "earlier", "later"]


NOTHING = line(span(" nothing was said to this agent yet", "dim"))


class Queue(LineView):
    """One line for each message."""

    BINDINGS = bindings("queue")

    class Asked(Message):
        """Do something with one message."""

        def __init__(self, what: What, entry: Entry) -> None:
            super().__init__()
            self.what = what
            self.entry = entry

    class Moved(Message):
        """The cursor is on another message."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.entries: list[Entry] = []
        self.empty = UNREAD

    def line_count(self) -> int:
        """One line each."""
        return len(self.entries)

    def line_at(self, number: int) -> Line:
        """One message."""
        return entry_line(self.entries[number], self.room)

    def moved(self) -> None:
        """Tell what is under the cursor."""
        say(self, self.Moved())

    @property
    def under_cursor(self) -> Entry | None:
        """The message with the cursor."""
        return self.entries[self.cursor] if self.cursor < len(self.entries) else None

    @property
    def waiting(self) -> int:
        """Messages that the agent has yet to hear."""
        return sum(one.state in ("queued", "unsent") for one in self.entries)

    def unread(self) -> None:
        """Nobody knows yet what was said to this agent."""
        self.empty = UNREAD
        self.entries, self.cursor = [], 0
        self.show()

    def take(self, entries: list[Entry]) -> None:
        """Show these messages; the cursor stays on its message."""
        if self.empty != NOTHING:
            self.empty = NOTHING
            self.refresh()
        under = self.under_cursor
        if entries == self.entries:
            return
        self.entries = entries
        ids = [one.id for one in entries]
        self.show()
        if under and under.id in ids:
            self.keep_line(ids.index(under.id))
        else:
            self.cursor = max(0, min(self.cursor, len(ids) - 1))
        self.moved()

    def _ask(self, what: What) -> None:
        if self.under_cursor is not None:
            say(self, self.Asked(what, self.under_cursor))

    def action_withdraw(self) -> None:
        """Take it back."""
        self._ask("withdraw")

    def action_edit(self) -> None:
        """Change it."""
        self._ask("edit")

    def action_move(self, by: int) -> None:
        """Have it heard earlier or later than the others that wait."""
        self._ask("later" if by > 0 else "earlier")

    async def copied(self) -> tuple[str, str]:
        """The message under the cursor."""
        return "the message", self.under_cursor.text if self.under_cursor else ""

    def action_choose(self) -> None:
        """Go to the step that heard it."""
        self._ask("go")
