"""The guidance pane below the trajectory: composer, exact text the agent will read, and queue.

Queued messages can be withdrawn, edited and reordered. Snippets are a file of texts that a person
uses again. The composer is in `panes.guidance_composer`, storage in `panes.guidance_outbox`.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from platformdirs import user_config_path
from textual import on
from textual.app import ComposeResult
from textual.message import Message

from houston_console.app import daemon_link
from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import bindings_for
from houston_console.panes import guidance_outbox
from houston_console.panes.critic_drafts import (
    ASKING_TEXT,
    AUTOPILOT_TEXT,
    DRAFTED_TEXT,
    ask_critic,
    draft_lines,
    is_on_autopilot,
)
from houston_console.panes.guidance_composer import (
    ROLLOUT_ENDED_TEXT,
    STRATEGY_HINT,
    Composer,
    is_mostly_commands,
)
from houston_console.panes.guidance_outbox import (
    AgentReaction,
    GuidanceDraft,
    GuidanceEntry,
    GuidanceOutbox,
    delivered_text_lines,
    delivery_lines,
    guidance_entry_line,
    merge_guidance_entries,
    move_in_order,
)
from houston_console.screens.base_screen import GoToStep, Pane, post_message_as
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.widgets.dialogs import CommandPalette, ConfirmDialog, PaletteCommand
from houston_console.widgets.line_view import (
    FixedLines,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.list_filter import FilteredList
from houston_console.widgets.styled_text import LOADING_LINE, TextLine, line, span
from houston_shared import atomic_file
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES
from houston_shared.store import annotation_queries, draft_queries
from houston_shared.store.draft_queries import CriticDraft
from houston_shared.store.presence_queries import current_person
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.step_queries import find_last_step
from houston_shared.store.workspace_queries import list_changed_files

_SNIPPET_SEPARATOR = "---"


def snippets_path() -> Path:
    """The file with a person's snippets."""
    return user_config_path("houston") / "snippets.txt"


def read_snippets(path: Path) -> list[str]:
    """The texts in the file, in its order; none when there is no file. Raises OSError."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    parts: list[list[str]] = [[]]
    for text_line in text.splitlines():
        if text_line.strip() == _SNIPPET_SEPARATOR:
            parts.append([])
        else:
            parts[-1].append(text_line)
    return [snippet for part in parts if (snippet := "\n".join(part).strip())]


def add_snippet(path: Path, text: str) -> bool:
    """Add a text at the end; returns whether it was new. Raises OSError."""
    snippets = read_snippets(path)
    if text.strip() in snippets:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_text = f"\n{_SNIPPET_SEPARATOR}\n".join([*snippets, text.strip()]) + "\n"
    atomic_file.write_atomically(path, whole_text.encode())
    return True


QueueAction = Literal["withdraw", "edit", "go", "earlier", "later"]


EMPTY_QUEUE_LINE = line(span(" nothing was said to this agent yet", "dim"))


class GuidanceQueue(FilteredList[GuidanceEntry]):
    """One line for each message."""

    BINDINGS = bindings_for("queue")

    @dataclass
    class Asked(Message):
        """Do something with one message."""

        what: QueueAction
        entry: GuidanceEntry

    class Moved(Message):
        """The cursor is on another message."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__([], **arguments)
        self.empty = LOADING_LINE

    def line_at(self, number: int) -> TextLine:
        """The line of one message."""
        return guidance_entry_line(self.items[number], self.line_cells)

    def filter_text(self, item: GuidanceEntry) -> str:
        """The message, its author, and how it stands."""
        return f"{item.text} {item.author} {item.critic} {item.state} {item.mode} {item.reason}"

    def cursor_moved(self) -> None:
        """Tell the pane that the cursor moved."""
        post_message_as(self, self.Moved())

    @property
    def waiting_count(self) -> int:
        """Messages that the agent has yet to hear."""
        return sum(item.state in ("queued", "unsent") for item in self.all_items)

    def show_loading(self) -> None:
        """Show that the messages are being read."""
        self.empty = LOADING_LINE
        self.end_filter()
        self.items, self.cursor = [], 0
        self.show()

    def show_entries(self, entries: list[GuidanceEntry]) -> None:
        """Show these messages; the cursor stays on its message."""
        if self.empty != EMPTY_QUEUE_LINE:
            self.empty = EMPTY_QUEUE_LINE
            self.refresh()
        if entries != self.all_items:
            self.set_items(entries, lambda entry: entry.id)
            self.cursor_moved()

    def _request(self, action: QueueAction) -> None:
        if self.under_cursor is not None:
            post_message_as(self, self.Asked(action, self.under_cursor))

    def action_withdraw(self) -> None:
        """Withdraw the message at the cursor."""
        self._request("withdraw")

    def action_edit(self) -> None:
        """Edit the message at the cursor."""
        self._request("edit")

    def action_move(self, by: int) -> None:
        """Have it heard earlier or later than the others that wait."""
        self._request("later" if by > 0 else "earlier")

    async def text_to_copy(self) -> tuple[str, str]:
        """The message under the cursor."""
        return "the message", self.under_cursor.text if self.under_cursor else ""

    def action_choose(self) -> None:
        """Go to the step that heard it."""
        self._request("go")


MAX_PREVIEW_LINES = 3
"""Lines of the exact text that are shown while somebody writes."""
MAX_DELIVERY_LINES = 9
"""The same, and what followed, for a message of the queue."""
COMPLETABLE_STEPS = 20
"""The last steps, whose numbers a word can be finished with."""
KEEP_SNIPPET = "keep"


class GuidancePane(Pane):
    """The pane below the trajectory."""

    class Compose(Message):
        """Somebody wants to write."""

    def __init__(
        self, outbox: GuidanceOutbox, link: DaemonLink, key: str = "5", **arguments: Any
    ) -> None:
        """key: the one that goes to the composer; it stands in the title."""
        super().__init__(**arguments)
        self._key = key
        self.composer = Composer(
            outbox, self._read_own_messages, self._read_completions, id="composer"
        )
        self.drafted, self.preview, self.queue = (
            FixedLines(focusable=False, id="drafted"),
            FixedLines(focusable=False, id="heard"),
            GuidanceQueue(id="queue"),
        )
        self.critic_draft: CriticDraft | None = None
        """The newest of this rollout that nobody has decided."""
        self._autopilot: bool | None = None
        """Whether its task lets a critic speak without a person; None before that was read."""
        self.source: RolloutSource | None = None
        self._outbox = outbox
        self._link = link
        self._reaction: AgentReaction | None = None
        self._moving = asyncio.Lock()

    def compose(self) -> ComposeResult:
        """What a critic drafted, composer, what the agent will read, queue."""
        yield self.drafted
        yield self.composer
        yield self.preview
        yield self.queue

    def on_mount(self) -> None:
        """Write the title of the pane."""
        self.update_titles()

    def switch_rollout(self, source: RolloutSource) -> None:
        """Speak to another rollout from now on; what was said to it is not read yet."""
        self.source = source
        self.composer.open(source.rollout)
        self.queue.show_loading()
        self._show_critic_draft(None)
        self._autopilot = None
        self.update_titles()

    def show_rollout_state(self, rollout: RolloutRow | None) -> None:
        """How the rollout stands: one that has ended hears nothing."""
        self.composer.set_heard(rollout is None or rollout.state not in ENDED_STATES)

    async def refresh_queue(self) -> None:
        """Show what was said, sent or not. Raises HoustonError."""
        source = self.source
        if source is not None:
            stored = await source.read(annotation_queries.list_guidance(source.rollout))
            author = current_person(self._link.claimed).name
            unsent = self._outbox.entries(source.rollout, author)
            drafted = await source.read(draft_queries.find_open_draft(source.rollout))
            if self._autopilot is None:
                autopilot = await source.read(is_on_autopilot(source.rollout))
                self._autopilot = autopilot if source is self.source else None
            if source is self.source:
                self._show_critic_draft(drafted)
                self.queue.show_entries(merge_guidance_entries(stored, unsent))
                self.update_titles()

    # --- what a critic drafts ------------------------------------------------------------------

    def _show_critic_draft(self, draft: CriticDraft | None) -> None:
        unsent_ids = {message.critic_draft for message in self._outbox.unsent()}
        self.critic_draft = draft if draft and draft.id not in unsent_ids else None
        edited = self.composer.draft.critic_draft  # it stands in the composer
        shown_draft = None if draft and draft.id == edited else self.critic_draft
        self.drafted.display = shown_draft is not None
        if shown_draft is not None:
            lines = draft_lines(shown_draft, max(20, self.content_size.width))
            self.drafted.styles.height = len(lines)
            self.drafted.show_lines(lambda width: lines)

    def ask_critic(self) -> None:
        """Have a critic read the rollout and draft what to say."""
        if self.source is None or not self.composer.is_heard:
            self.show_notice(ROLLOUT_ENDED_TEXT)
            return
        self.show_notice(ASKING_TEXT, good=True)
        self.run_reporting(self._ask_critic(self.source), "critic")

    async def _ask_critic(self, source: RolloutSource) -> None:
        problem = await ask_critic(self._link.home, source.rollout, self._link.configuration)
        await self.refresh_queue()
        if problem:
            self.show_notice(problem)
        elif source is self.source:
            self.show_notice(DRAFTED_TEXT, good=True)

    def decide_draft(self, decision: str) -> None:
        """Say the critic's draft as it is, take it into the composer, or turn it down."""
        draft = self.critic_draft
        if draft is None:
            self.show_notice("No draft of a critic waits here. P: ask for one.")
        elif decision == "reject":
            self.run_reporting(self._reject_draft(draft), "critic")
        elif decision == "edit":
            self._edit_draft(draft)
        elif not self.composer.is_heard:
            self.show_notice(ROLLOUT_ENDED_TEXT)
        else:
            self._say_draft(draft)

    def _say_draft(self, draft: CriticDraft) -> None:
        try:
            self._outbox.post(draft.rollout, draft.text, "next", draft.id)
        except OSError as problem:
            self.show_notice(f"It was not sent: {problem}")
            return
        self._show_critic_draft(None)
        self.run_reporting(self._send_unsent(), "guidance")

    def _edit_draft(self, draft: CriticDraft) -> None:
        if self.composer.text.strip():
            self.show_notice("There is a draft in the composer: send it or clear it first.")
            return
        self.composer.write(GuidanceDraft(draft.rollout, draft.text, critic_draft=draft.id))
        self._show_critic_draft(draft)
        post_message_as(self, self.Compose())

    async def _reject_draft(self, draft: CriticDraft) -> None:
        self.show_notice(await daemon_link.reject_draft(self._link, draft.id), good=True)
        await self.refresh_queue()

    # --- what the composer may ask ------------------------------------------------------------

    async def _read_own_messages(self) -> list[str]:
        """What this person said before."""
        source, name = self.source, current_person(self._link.claimed).name
        return await source.read(guidance_outbox.read_messages_by(name)) if source else []

    async def _read_completions(self) -> list[str]:
        """Files that the agent changed, the newest first, then its last steps."""
        if self.source is None:
            return []
        changed = await self.source.read(list_changed_files(self.source.rollout))
        newest = await self.source.read(find_last_step(self.source.rollout))
        steps = [
            f"step {number}" for number in range(newest, max(0, newest - COMPLETABLE_STEPS), -1)
        ]
        return [file.path for file in changed] + steps

    def on_composer_snippets(self) -> None:
        """Open the list of snippets."""
        path, text = snippets_path(), self.composer.text.strip()
        try:
            snippets = read_snippets(path)
        except OSError as problem:
            self.show_notice(f"{path} cannot be read: {problem.strerror}")
            return
        offered = [
            PaletteCommand(" ".join(snippet.split()), str(at))
            for at, snippet in enumerate(snippets)
        ]
        if text and text not in snippets:
            offered.append(
                PaletteCommand("keep what is written here, to say it again", KEEP_SNIPPET)
            )
        if not offered:
            self.show_notice(f"Nothing is kept in {path} yet: write something, then this key.")
            return
        self.app.push_screen(
            CommandPalette(offered, "Snippets"), lambda chosen: self._take_snippet(chosen, snippets)
        )

    def _take_snippet(self, chosen: PaletteCommand | None, snippets: list[str]) -> None:
        if chosen is None:
            return
        if chosen.action != KEEP_SNIPPET:
            self.composer.insert(snippets[int(chosen.action)])
            return
        path = snippets_path()
        try:
            add_snippet(path, self.composer.text)
        except OSError as problem:
            self.show_notice(f"It is not kept: {path}: {problem.strerror}")
        else:
            self.show_notice(f"Kept in {path}.", good=True)

    # --- what the agent will read ------------------------------------------------------------

    def update_titles(self) -> None:
        """Say what would happen on Enter, and what the agent would read."""
        edits, waiting = self.composer.draft.edits, self.queue.waiting_count
        name = self.composer.draft.rollout
        whom = f" to {name}" if name else ""
        doing = f"Editing what waits for {name}" if edits else f"Say{whom}"
        set_frame_title(self, f"{self._key} {doing}")
        manner = STRATEGY_HINT if is_mostly_commands(self.composer.text) else ""
        parts = [part for part in (manner, f"{waiting} waiting" if waiting else "") if part]
        pilot = (span(AUTOPILOT_TEXT, "warning"),) if self._autopilot else ()
        set_frame_subtitle(self, line(*pilot, span("   ".join(parts), "text")))
        lines = self._preview_lines()
        self.preview.display = bool(lines)
        self.preview.styles.height = max(1, len(lines))
        self.preview.show_lines(lambda width: lines)

    def _preview_lines(self) -> list[TextLine]:
        under, width = self.queue.under_cursor, self.content_size.width
        if not self.queue.has_focus:
            text = self.composer.text
            return delivered_text_lines(text, width, MAX_PREVIEW_LINES) if text.strip() else []
        if under is None:
            return []
        fate = delivery_lines(under, self._reaction, width)
        never = under.state in ("withdrawn", "refused")
        return (
            delivered_text_lines(under.text, width, max(2, MAX_DELIVERY_LINES - len(fate)), never)
            + fate
        )

    async def _read_reaction(self) -> None:
        """Read what the agent did after it heard the message under the cursor."""
        source, under = self.source, self.queue.under_cursor
        if source is None or under is None or under.step is None or not self.queue.has_focus:
            return
        self._reaction = await source.read(
            guidance_outbox.read_agent_reaction(source.rollout, under.id, under.step)
        )
        self.update_titles()

    @on(Composer.Changed)
    @on(GuidanceQueue.Moved)
    def _text_changed(self) -> None:
        self.update_titles()
        self.run_reporting(self._read_reaction(), "guidance")

    def on_resize(self) -> None:
        """What the agent would read is wrapped for the width there is."""
        self.update_titles()

    def on_descendant_focus(self) -> None:
        """Show what belongs to the part with the focus."""
        self.update_titles()
        self.run_reporting(self._read_reaction(), "guidance")

    def on_descendant_blur(self) -> None:
        """The same when it leaves."""
        self.update_titles()

    # --- sending -----------------------------------------------------------------------------

    def on_composer_lost(self, message: Composer.Lost) -> None:
        """The disk of the state folder is full, or the like."""
        self.show_notice(f"What you type is only on this screen: {message.problem}")

    def on_composer_unheard(self) -> None:
        """The rollout has ended; what was typed stays as a draft."""
        self.show_notice(ROLLOUT_ENDED_TEXT)

    def on_composer_posted(self) -> None:
        """Send what is stored, and show it either way."""
        self.run_reporting(self._send_unsent(), "guidance")

    async def _send_unsent(self) -> None:
        before = {item.id for item in self.queue.all_items if item.state == "refused"}
        await self._link.send_unsent()
        await self.refresh_queue()
        refused = [item for item in self.queue.all_items if item.state == "refused"]
        if refused and refused[-1].id not in before:
            self.show_notice(refused[-1].reason)
        if self._link.state != "live":
            words = "Kept as unsent: it is sent as soon as the daemon is there."
            self.show_notice(words)

    def on_composer_asked(self, message: Composer.Asked) -> None:
        """An edit is for the daemon to agree to; interrupting, for the person to confirm."""
        draft = message.draft
        if draft.edits:
            self.run_reporting(self._send_edit(draft), "guidance")
            return
        question = "Interrupt what the agent is doing now, and say this?"
        self.app.push_screen(
            ConfirmDialog(question, draft.text),
            lambda yes: self.composer.post_draft("interrupt") if yes else None,
        )

    async def _send_edit(self, draft: GuidanceDraft) -> None:
        try:
            words = await daemon_link.edit_guidance(self._link, draft)
        except HoustonError as problem:
            await self.refresh_queue()
            self._offer_again(draft, problem)
            return
        self.composer.drop_sent(draft)
        self.show_notice(words, good=True)
        await self.refresh_queue()

    def _offer_again(self, draft: GuidanceDraft, problem: HoustonError) -> None:
        """What was typed stays; the next Enter does what can still be done with it."""
        now = next((item for item in self.queue.all_items if item.id == draft.edits), None)
        newer = now is not None and now.state == "queued" and now.revision != draft.revision
        is_open = self.composer.is_editing(draft)
        if now is None or not is_open or (now.state == "queued" and not newer):
            self.report_problem(problem)
            return
        words = self.composer.text
        if newer:
            self.composer.write(GuidanceDraft(draft.rollout, words, draft.edits, now.revision))
            text = "It was changed meanwhile, and reads now as below. enter: your words instead."
        else:
            self.composer.write(GuidanceDraft(draft.rollout, words))
            text = f"It is {now.state} already, as it was. enter: say your words as a new message."
        self.show_notice(text)

    # --- the queue ---------------------------------------------------------------------------

    def on_guidance_queue_asked(self, message: GuidanceQueue.Asked) -> None:
        """Withdraw, edit, or go to where it was heard."""
        entry = message.entry
        if message.what == "go":
            if entry.step is not None:
                post_message_as(self, GoToStep(entry.step))
        elif entry.state in ("unsent", "refused"):
            if message.what in ("earlier", "later"):
                self.show_notice("It is not sent yet: only queued guidance can be moved.")
            elif message.what == "withdraw" or self._open_in_composer(entry):
                self._outbox.remove(entry.id)
                self.run_reporting(self.refresh_queue(), "guidance")
        elif entry.state != "queued":
            words = f"It is {entry.state} already; only queued guidance can change."
            self.show_notice(words)
        elif message.what == "withdraw":
            self._ask_withdraw(entry)
        elif message.what in ("earlier", "later"):
            self.run_reporting(self._move(entry, 1 if message.what == "later" else -1), "guidance")
        else:
            self._open_in_composer(entry)

    async def _move(self, entry: GuidanceEntry, by: int) -> None:
        async with self._moving:  # a key pressed again moves on from where the first has led
            old, order = move_in_order(self.queue.all_items, entry.id, by)
            if self.source is None or order == old:
                return
            words = await daemon_link.reorder_guidance(self._link, self.source.rollout, old, order)
            self.show_notice(words, good=True)
            await self.refresh_queue()

    def _ask_withdraw(self, entry: GuidanceEntry) -> None:
        """One's own words are taken back at once; those of others only when that is meant."""
        if entry.author == current_person(self._link.claimed).name:
            self.run_reporting(self._withdraw(entry), "guidance")
            return
        self.app.push_screen(
            ConfirmDialog(f"Take back what {entry.author} said?", entry.text),
            lambda yes: self.run_reporting(self._withdraw(entry), "guidance") if yes else None,
        )

    async def _withdraw(self, entry: GuidanceEntry) -> None:
        self.show_notice(await daemon_link.withdraw_guidance(self._link, entry), good=True)
        await self.refresh_queue()

    def _open_in_composer(self, entry: GuidanceEntry) -> bool:
        """Have a message in the composer, unless something stands there that would be lost."""
        edits = entry.id if entry.state == "queued" else ""
        draft = self.composer.draft
        is_open = bool(edits) and draft.edits == edits
        if draft.text.strip() and not is_open:
            self.show_notice("There is a draft in the composer: send it or clear it first.")
            return False
        if not is_open:
            self.composer.write(GuidanceDraft(draft.rollout, entry.text, edits, entry.revision))
        post_message_as(self, self.Compose())
        return True
