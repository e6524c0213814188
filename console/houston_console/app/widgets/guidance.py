"""What people say to the agent: the composer, the exact text it will read, and the queue below.

Every change of the draft is stored at once (`outbox`), so nothing typed is lost. Sending is done by
the app; this area says what was asked.
"""

from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import TextArea

from houston_console.app.keymap import bindings
from houston_console.app.lines import Line, block, line, span
from houston_console.app.listing import as_heard, entry_line
from houston_console.app.outbox import Draft, Outbox
from houston_console.app.state import Entry
from houston_console.app.widgets.frame import subtitle, title
from houston_console.app.widgets.line_view import LineView
from houston_console.app.widgets.selector import Facts
from houston_shared.records import GuidanceMode

HEARD_LINES = 3


class Send(Message):
    """Send what stands in the composer."""

    def __init__(self, mode: GuidanceMode, draft: Draft) -> None:
        super().__init__()
        self.mode = mode
        self.draft = draft


class Composer(TextArea):
    """A few lines of plain text, with its draft kept on disk."""

    BINDINGS = bindings("composer")

    class Leave(Message):
        """Back to the trajectory."""

    class Lost(Message):
        """The draft could not be stored."""

        def __init__(self, problem: OSError) -> None:
            super().__init__()
            self.problem = problem

    def __init__(self, outbox: Outbox, **arguments: Any) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder="The agent reads this inside its next observation.",
            **arguments,
        )
        self.cursor_blink = False
        self._outbox = outbox
        self.draft = Draft("", "")

    def open(self, rollout: str) -> None:
        """Take up the draft for a rollout."""
        self.put(self._outbox.draft(rollout))

    def put(self, draft: Draft) -> None:
        """Have another draft in the composer."""
        self.draft = draft
        self.load_text(draft.text)
        self.move_cursor(self.document.end)

    def on_text_area_changed(self) -> None:
        """Store the draft as it is now."""
        if self.draft.rollout and self.text != self.draft.text:
            self.keep(self.text)

    def keep(self, text: str) -> None:
        """Store another text for this draft."""
        self.draft = Draft(self.draft.rollout, text, self.draft.edits, self.draft.revision)
        try:
            self._outbox.keep_draft(self.draft)
        except OSError as problem:
            self.post_message(self.Lost(problem))

    def clear_draft(self) -> None:
        """It was sent: an empty draft, for a new message."""
        self.put(Draft(self.draft.rollout, ""))
        self.keep("")

    def action_send(self, mode: GuidanceMode) -> None:
        """Send, unless there is nothing but space."""
        self.keep(self.text)
        if self.draft.rollout and self.text.strip():
            self.post_message(Send(mode, self.draft))

    def action_newline(self) -> None:
        """A new line at the cursor."""
        self.insert("\n")

    def action_leave(self) -> None:
        """Back to the trajectory; the draft stays."""
        if self.draft.edits:
            self.clear_draft()
        self.post_message(self.Leave())

    async def _on_paste(self, event: events.Paste) -> None:
        """Pasted text keeps its lines, whatever ended them."""
        event.prevent_default()
        self.insert(event.text.replace("\r\n", "\n").replace("\r", "\n"))


class Queue(LineView):
    """Messages and their states, what waits first."""

    BINDINGS = bindings("queue")

    class Asked(Message):
        """Do something with one message."""

        def __init__(self, what: str, entry: Entry) -> None:
            super().__init__()
            self.what = what
            self.entry = entry

    class Moved(Message):
        """The cursor is on another message."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.entries: list[Entry] = []
        self.empty = line(span(" nothing was said to this agent yet", "dim"))

    def line_count(self) -> int:
        """One line each."""
        return len(self.entries)

    def line_at(self, number: int) -> Line:
        """One message."""
        return entry_line(self.entries[number], self.room)

    def moved(self) -> None:
        """Tell what is under the cursor."""
        self.post_message(self.Moved())

    @property
    def under_cursor(self) -> Entry | None:
        """The message with the cursor."""
        return self.entries[self.cursor] if self.cursor < len(self.entries) else None

    def take(self, entries: list[Entry]) -> None:
        """Show these messages; the cursor stays on its message."""
        under = self.under_cursor
        if entries == self.entries:
            return
        self.entries = entries
        ids = [one.id for one in entries]
        self.cursor = ids.index(under.id) if under and under.id in ids else 0
        self.show()
        self.moved()

    def _ask(self, what: str) -> None:
        if self.under_cursor is not None:
            self.post_message(self.Asked(what, self.under_cursor))

    def action_withdraw(self) -> None:
        """Take it back."""
        self._ask("withdraw")

    def action_edit(self) -> None:
        """Change it."""
        self._ask("edit")

    def action_choose(self) -> None:
        """Go to the step that heard it."""
        self._ask("go")


class GuidanceArea(Vertical):
    """The area below the trajectory."""

    def __init__(self, outbox: Outbox, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.composer = Composer(outbox, id="composer")
        self.heard, self.queue = Facts(id="heard"), Queue(id="queue")

    def compose(self) -> ComposeResult:
        """Composer, what the agent will read, queue."""
        yield self.composer
        yield self.heard
        yield self.queue

    def on_mount(self) -> None:
        """Name the area."""
        self.dress()

    def dress(self) -> None:
        """Say what would happen on Enter, and what the agent would read."""
        composer, queue = self.composer, self.queue
        edits = composer.draft.edits
        title(self, "5 Editing queued guidance" if edits else "5 Say to the agent")
        waiting = sum(one.state in ("queued", "unsent") for one in queue.entries)
        subtitle(self, line(f"{waiting} waiting" if waiting else ""))
        self._show_heard(composer.text if not queue.has_focus else "")

    def _show_heard(self, text: str) -> None:
        heard, queue, room = self.heard, self.queue, self.content_size.width
        if queue.has_focus and queue.under_cursor is not None:
            text = queue.under_cursor.text
        lines: list[Line] = []
        if text.strip():
            mark = span(" agent reads ", "faint")
            wrapped = block(as_heard(text), room - len(mark.text), "guidance_text")
            pad = span(" " * len(mark.text))
            lines = [(mark if not i else pad, *one) for i, one in enumerate(wrapped)]
            if len(lines) > HEARD_LINES:
                more = len(lines) - HEARD_LINES + 1
                lines = [*lines[: HEARD_LINES - 1], line(pad, span(f"… {more} more lines", "dim"))]
        heard.display = bool(lines)
        heard.styles.height = max(1, len(lines))
        heard.put(lines)

    def on_text_area_changed(self) -> None:
        """What the agent would read follows the draft."""
        self.dress()

    def on_queue_moved(self) -> None:
        """Or the message under the cursor."""
        self.dress()

    def on_descendant_focus(self) -> None:
        """Which of the two has the focus."""
        self.dress()

    def on_descendant_blur(self) -> None:
        """The same when it leaves."""
        self.dress()
