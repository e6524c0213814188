"""The composer: a few lines of plain text for the agent, stored at every change, sent by keys.

Includes word completion (changed files, steps), the history of earlier messages, and the hint
that a strategy helps more than a command. Whether and when a message reaches the daemon is not
known here.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import TextArea

from houston_console.app.error_boundary import PaneBoundary
from houston_console.app.key_bindings import actions_by_key
from houston_console.panes.guidance_outbox import GuidanceDraft, GuidanceOutbox
from houston_console.screens.base_screen import UserNotice, post_message_as
from houston_console.widgets.dialogs import InputHistory
from houston_shared.records import GuidanceMode
from houston_shared.safe_text import safe_cells

COMPOSER_PLACEHOLDER = "Say what to aim for and why; the how is the agent's. It reads this next."
"""In an empty composer: where it is read once and is never in the way."""
STRATEGY_HINT = "a strategy helps longer than a command"
"""Beside what reads like a command; nothing is refused."""
_SHELL_COMMAND = re.compile(
    r"^\s*(\$ |>>> |```|sudo |pip |git |cd |python3? |bash |sed |cat )|&&|\|\|?\s*\w"
)


def is_mostly_commands(text: str) -> bool:
    """Whether most lines of `text` are for a shell rather than for somebody who thinks."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and 2 * sum(bool(_SHELL_COMMAND.search(line)) for line in lines) > len(lines)


_WORD_BEFORE_CURSOR = re.compile(r"[\w./+@:~-]+$")
MAX_SHOWN_COMPLETIONS = 5
"""Words that are shown at once."""


class WordCompletion(NamedTuple):
    """Words that may be meant, one of which is taken."""

    typed: str
    words: tuple[str, ...]
    position: int = 0

    @property
    def word(self) -> str:
        """The word in place of what was typed."""
        return self.words[self.position]

    def next(self) -> "WordCompletion":
        """The same with the next word."""
        return self._replace(position=(self.position + 1) % len(self.words))

    def text(self) -> str:
        """The words near the one that is taken, for the person."""
        first = max(0, min(self.position - 1, len(self.words) - MAX_SHOWN_COMPLETIONS))
        shown_places = range(first, min(first + MAX_SHOWN_COMPLETIONS, len(self.words)))
        words = "   ".join(
            f"‹{self.words[i]}›" if i == self.position else self.words[i] for i in shown_places
        )
        return f"{self.position + 1}/{len(self.words)}   {words}"


def complete_word(before: str, candidates: Sequence[str]) -> WordCompletion | None:
    """What may be meant by the end of `before`; None when nothing begins or contains that.

    Candidates that begin with it come first, then those of which a part (after `/` or a space)
    does, then those that contain it; each group in the given order.
    """
    match = _WORD_BEFORE_CURSOR.search(before)
    typed = match.group() if match else ""
    low = typed.lower()
    groups: tuple[list[str], ...] = ([], [], [])
    for word in dict.fromkeys(candidates):
        at = word.lower().find(low)
        parts = re.split(r"[/ ]", word.lower())
        if at == 0:
            groups[0].append(word)
        elif any(part.startswith(low) for part in parts):
            groups[1].append(word)
        elif at > 0:
            groups[2].append(word)
    words = tuple(word for group in groups for word in group if word != typed)
    return WordCompletion(typed, words) if words else None


def _draft_of_rest(sent: GuidanceDraft, text: str) -> GuidanceDraft:
    """A new message of what `text` holds behind the draft that was sent."""
    return GuidanceDraft(sent.rollout, text.removeprefix(sent.text).lstrip("\n"))


CompletionSource = Callable[[], Awaitable[list[str]]]
ROLLOUT_ENDED_TEXT = "This rollout has ended; nobody would hear it."


class Composer(PaneBoundary, TextArea):
    """Writes the draft of one rollout at a time."""

    class Posted(Message):
        """A message is stored as unsent."""

    class Unheard(Message):
        """Nothing was sent, because nobody would hear it."""

    @dataclass
    class Asked(Message):
        """Something that a person must confirm, or the daemon agree to; the draft stays."""

        mode: GuidanceMode
        draft: GuidanceDraft

    class Snippets(Message):
        """Choose among the texts that are kept, or keep this one."""

    class Leave(Message):
        """The composer is left for the trajectory."""

    @dataclass
    class Lost(Message):
        """A draft or a message could not be stored."""

        problem: OSError

    def __init__(
        self,
        outbox: GuidanceOutbox,
        read_messages: CompletionSource,
        read_completions: CompletionSource,
        **arguments: Any,
    ) -> None:
        """read_messages: what this person said before, newest last. read_completions: words."""
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=COMPOSER_PLACEHOLDER,
            **arguments,
        )
        self.cursor_blink = False
        self._actions_by_key = actions_by_key("composer")
        self._outbox = outbox
        self.draft = GuidanceDraft("", "")
        self._is_heard = True
        self._read_messages, self._read_completions = read_messages, read_completions
        self._history = InputHistory[str]()
        self._completion: WordCompletion | None = None
        self._was_left = False
        """Left, though the focus has not gone yet: what is typed now is meant for elsewhere."""

    def on_focus(self) -> None:
        """Take keys for the draft again."""
        self._was_left = False

    async def _on_key(self, event: events.Key) -> None:
        """Keys are taken here, not as bindings: those may overtake letters typed before them."""
        if self._was_left:
            event.stop()
            event.prevent_default()
            self.app.post_message(events.Key(event.key, event.character))
            return
        action = self._actions_by_key.get(event.key) or self._history_action(event.key)
        if action != "complete":
            self._completion = None
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
        safe_line = safe_cells(self.document.get_line(line_index))
        return Text(safe_line, end="", no_wrap=True)

    # --- the draft ---------------------------------------------------------------------------

    def open(self, rollout: str) -> None:
        """Take up the draft for a rollout; the last letters for the one before are kept."""
        self.on_text_area_changed()
        self._load(self._outbox.draft(rollout))

    def take_up_draft(self) -> None:
        """Take up the draft as another composer of this person may have left it."""
        stored = self._outbox.draft(self.draft.rollout)
        if self.draft.rollout and self.text == self.draft.text and stored != self.draft:
            self._load(stored)

    def set_heard(self, is_heard: bool) -> None:
        """Note whether the agent would hear what is sent."""
        if is_heard != self._is_heard:
            self._is_heard = is_heard
            self.placeholder = COMPOSER_PLACEHOLDER if is_heard else ROLLOUT_ENDED_TEXT

    @property
    def is_heard(self) -> bool:
        """Whether the agent would hear what is sent."""
        return self._is_heard

    def write(self, draft: GuidanceDraft) -> None:
        """Have another draft in the composer, and store it."""
        self._load(draft)
        self._store_draft(draft.text)

    def drop_sent(self, draft: GuidanceDraft) -> None:
        """Remove `draft`, which was sent; text typed after it becomes a message of its own.

        If another rollout was opened meanwhile, only what is stored changes.
        """
        if self.is_editing(draft):
            self.write(_draft_of_rest(draft, self.text))
            return
        stored = self._outbox.draft(draft.rollout)
        if draft.rollout != self.draft.rollout and stored.edits == draft.edits:
            self._store(_draft_of_rest(draft, stored.text))

    def is_editing(self, draft: GuidanceDraft) -> bool:
        """Whether what is written here is still `draft`, however it went on."""
        return (self.draft.rollout, self.draft.edits) == (draft.rollout, draft.edits)

    def _load(self, draft: GuidanceDraft) -> None:
        self.draft = draft
        if self.text == draft.text:  # as it mostly is, empty: nothing to be drawn anew
            self.history.clear()
        else:
            self.load_text(draft.text)
        self.move_cursor(self.document.end)

    def on_text_area_changed(self) -> None:
        """Store the draft as it is now."""
        if self.draft.rollout and self.text != self.draft.text:
            self._store_draft(self.text)

    def _store_draft(self, text: str) -> None:
        """Store another text; an emptied draft edits nothing any more."""
        self.draft = (
            msgspec.structs.replace(self.draft, text=text)
            if text
            else GuidanceDraft(self.draft.rollout, "")
        )
        self._store(self.draft)

    def _store(self, draft: GuidanceDraft) -> None:
        try:
            self._outbox.store_draft(draft)
        except OSError as problem:
            post_message_as(self, self.Lost(problem))

    def _history_action(self, key: str) -> str:
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
        self._store_draft(self.text)
        if not self.draft.rollout or not self.text.strip():
            return
        if not self._is_heard:
            post_message_as(self, self.Unheard())
            return
        if mode == "interrupt" or self.draft.edits:
            post_message_as(self, self.Asked(mode, self.draft))
        else:
            self.post_draft(mode)

    def post_draft(self, mode: GuidanceMode) -> None:
        """Store the draft as a message to be sent, and be free for the next."""
        draft = self.draft
        try:
            self._outbox.post(draft.rollout, draft.text, mode, draft.critic_draft)
        except OSError as problem:
            post_message_as(self, self.Lost(problem))
            return
        self.write(GuidanceDraft(draft.rollout, ""))
        post_message_as(self, self.Posted())

    async def action_older(self) -> None:
        """Show the message before this one."""
        messages = await self._read_messages()
        if not self._history.walking:
            self._history = InputHistory(messages)
        self._show(self._history.walk(-1, self.text))

    async def action_newer(self) -> None:
        """Show the message after this one."""
        self._show(self._history.walk(1))

    def _show(self, text: str | None) -> None:
        """Show another text in the same draft."""
        if text is not None:
            self.load_text(text)
            self.move_cursor(self.document.end)
            self._store_draft(text)

    async def action_complete(self) -> None:
        """Finish the word before the cursor; again: with the next word that fits."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        last = self._completion
        if last is not None and before.endswith(last.word):
            completion: WordCompletion | None = last.next()
            length = len(last.word)
        else:
            completion = complete_word(before, await self._read_completions())
            length = len(completion.typed) if completion else 0
        self._completion = completion
        if completion is None:
            post_message_as(self, UserNotice("Nothing has that name."))
            return
        self.replace(completion.word, (row, column - length), (row, column))
        post_message_as(self, UserNotice(completion.text(), good=True))

    def action_snippets(self) -> None:
        """Open the list of snippets."""
        post_message_as(self, self.Snippets())

    def action_newline(self) -> None:
        """Insert a line break at the cursor."""
        self.insert("\n")

    def action_leave(self) -> None:
        """Go back to the trajectory; the draft is kept."""
        self._was_left = True
        post_message_as(self, self.Leave())
