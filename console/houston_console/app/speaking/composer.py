"""The composer: a few lines of plain text, stored at every change, sent by keys.

A message is stored as unsent before the composer is free for the next one, so that no moment exists
in which what was typed is nowhere. Whether and when it goes to the daemon is not known here.
"""

from typing import Any

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import TextArea

from houston_console.app.keys import actions
from houston_console.app.messages import say
from houston_console.app.speaking.outbox import Draft, Outbox
from houston_shared.records import GuidanceMode
from houston_shared.safe_text import safe_cells

PLACEHOLDER = "The agent reads this inside its next observation."
ENDED_WORDS = "This rollout has ended; nobody would hear it."


class Composer(TextArea):
    """Writes the draft of one rollout at a time."""

    class Posted(Message):
        """A message is stored as unsent."""

    class Unheard(Message):
        """Nothing was sent, because nobody would hear it."""

    class Asked(Message):
        """Something that a person must confirm, or the daemon agree to; the draft stays."""

        def __init__(self, mode: GuidanceMode, draft: Draft) -> None:
            super().__init__()
            self.mode = mode
            self.draft = draft

    class Leave(Message):
        """Back to the trajectory."""

    class Lost(Message):
        """A draft or a message could not be stored."""

        def __init__(self, problem: OSError) -> None:
            super().__init__()
            self.problem = problem

    def __init__(self, outbox: Outbox, **arguments: Any) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=PLACEHOLDER,
            **arguments,
        )
        self.cursor_blink = False
        self._keys = actions("composer")
        self._outbox = outbox
        self.draft = Draft("", "")
        self._heard = True

    async def _on_key(self, event: events.Key) -> None:
        """Keys are taken here, not as bindings: those may overtake letters typed before them."""
        if action := self._keys.get(event.key):
            event.stop()
            event.prevent_default()
            await self.run_action(action)

    async def _on_paste(self, event: events.Paste) -> None:
        """Pasted text keeps its lines, whatever ended them."""
        event.prevent_default()
        self.insert(event.text.replace("\r\n", "\n").replace("\r", "\n"))

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn: safe, character by character; what is sent stays as written."""
        shown = safe_cells(self.document.get_line(line_index))
        return Text(shown, end="", no_wrap=True)

    # --- the draft ---------------------------------------------------------------------------

    def open(self, rollout: str) -> None:
        """Take up the draft for a rollout; the last letters for the one before are kept."""
        self.on_text_area_changed()
        self._put(self._outbox.draft(rollout))

    def open_ears(self, heard: bool) -> None:
        """Whether somebody would hear what is sent."""
        if heard != self._heard:
            self._heard = heard
            self.placeholder = PLACEHOLDER if heard else ENDED_WORDS

    def write(self, draft: Draft) -> None:
        """Have another draft in the composer, and store it."""
        self._put(draft)
        self._keep(draft.text)

    def taken(self, draft: Draft) -> None:
        """`draft` has gone; what was typed behind it since is a message of its own."""
        rest = self.text.removeprefix(draft.text).lstrip("\n")
        self.write(Draft(draft.rollout, rest))

    def _put(self, draft: Draft) -> None:
        self.draft = draft
        self.load_text(draft.text)
        self.move_cursor(self.document.end)

    def on_text_area_changed(self) -> None:
        """Store the draft as it is now."""
        if self.draft.rollout and self.text != self.draft.text:
            self._keep(self.text)

    def _keep(self, text: str) -> None:
        """Store another text; an emptied draft edits nothing any more."""
        edits = (self.draft.edits, self.draft.revision) if text else ("", 0)
        self.draft = Draft(self.draft.rollout, text, *edits)
        try:
            self._outbox.keep_draft(self.draft)
        except OSError as problem:
            say(self, self.Lost(problem))

    # --- keys --------------------------------------------------------------------------------

    def action_send(self, mode: GuidanceMode) -> None:
        """Send, unless there is nothing but space."""
        self._keep(self.text)
        if not self.draft.rollout or not self.text.strip():
            return
        if not self._heard:
            say(self, self.Unheard())
            return
        if mode == "interrupt" or self.draft.edits:
            say(self, self.Asked(mode, self.draft))
        else:
            self.store(mode)

    def store(self, mode: GuidanceMode) -> None:
        """Store the draft as a message to be sent, and be free for the next."""
        draft = self.draft
        try:
            self._outbox.post(draft.rollout, draft.text, mode)
        except OSError as problem:
            say(self, self.Lost(problem))
            return
        self.write(Draft(draft.rollout, ""))
        say(self, self.Posted())

    def action_newline(self) -> None:
        """A new line at the cursor."""
        self.insert("\n")

    def action_leave(self) -> None:
        """Back to the trajectory; the draft stays."""
        say(self, self.Leave())
