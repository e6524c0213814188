"""The composer: a few lines of plain text, stored at every change, sent by keys.

A message is stored as unsent before the composer is free for the next one, so that no moment exists
in which what was typed is nowhere. Whether and when it goes to the daemon is not known here.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import TextArea

from houston_console.app.error_boundary import PaneBoundary
from houston_console.app.keys import actions
from houston_console.app.messages import Told, say
from houston_console.app.speaking.completion import Offer, offer
from houston_console.app.speaking.history import History
from houston_console.app.speaking.manner import PLACEHOLDER
from houston_console.app.speaking.outbox import Draft, Outbox
from houston_shared.records import GuidanceMode
from houston_shared.safe_text import safe_cells

Words = Callable[[], Awaitable[list[str]]]
ENDED_WORDS = "This rollout has ended; nobody would hear it."


class Composer(PaneBoundary, TextArea):
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

    class Snippets(Message):
        """Choose among the texts that are kept, or keep this one."""

    class Leave(Message):
        """Back to the trajectory."""

    class Lost(Message):
        """A draft or a message could not be stored."""

        def __init__(self, problem: OSError) -> None:
            super().__init__()
            self.problem = problem

    def __init__(self, outbox: Outbox, said: Words, known: Words, **arguments: Any) -> None:
        """said: what this person said before, the newest last; known: words to finish with."""
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
        self._said, self._known = said, known
        self._history = History()
        self._offer: Offer | None = None
        self._left = False
        """Left, though the focus has not gone yet: what is typed now is meant for elsewhere."""

    def on_focus(self) -> None:
        """What is typed is the draft's."""
        self._left = False

    async def _on_key(self, event: events.Key) -> None:
        """Keys are taken here, not as bindings: those may overtake letters typed before them."""
        letter = event.character or ""
        # Escape and a letter within half a second reach a program in tmux as one: alt and a letter.
        joined = letter.isalnum() and event.key.startswith("alt+") and event.key not in self._keys
        if self._left or joined:
            event.stop()
            event.prevent_default()
            if joined and not self._left:
                self.action_leave()
            self.app.post_message(events.Key(letter if joined else event.key, event.character))
            return
        action = self._keys.get(event.key) or self._walk(event.key)
        if action != "complete":
            self._offer = None
        if action not in ("older", "newer") and (event.is_printable or event.key == "backspace"):
            self._history.leave()
        if action:
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

    def _walk(self, key: str) -> str:
        """The arrows walk through what was said where they have no line to go to."""
        row, _ = self.cursor_location
        if key == "up" and row == 0 and (self._history.walking or not self.text):
            return "older"
        if key == "down" and row == self.document.line_count - 1 and self._history.walking:
            return "newer"
        return ""

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

    async def action_older(self) -> None:
        """What was said before this."""
        self._history.take(await self._said())
        self._show(self._history.older(self.text))

    async def action_newer(self) -> None:
        """What was said after it."""
        self._show(self._history.newer())

    def _show(self, text: str | None) -> None:
        """Another text, of the same draft."""
        if text is not None:
            self.load_text(text)
            self.move_cursor(self.document.end)
            self._keep(text)

    async def action_complete(self) -> None:
        """Finish the word before the cursor; again: with the next word that fits."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        last = self._offer
        if last is not None and before.endswith(last.taken):
            found: Offer | None = last.next()
            length = len(last.taken)
        else:
            found = offer(before, await self._known())
            length = len(found.typed) if found else 0
        self._offer = found
        if found is None:
            say(self, Told("Nothing is called that."))
            return
        self.replace(found.taken, (row, column - length), (row, column))
        say(self, Told(found.said(), good=True))

    def action_snippets(self) -> None:
        """Texts that are kept."""
        say(self, self.Snippets())

    def action_newline(self) -> None:
        """A new line at the cursor."""
        self.insert("\n")

    def action_leave(self) -> None:
        """Back to the trajectory; the draft stays."""
        self._left = True
        say(self, self.Leave())
