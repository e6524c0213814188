"""What people say to the agent: the composer, the exact text it will read, and the queue below."""

from collections.abc import Coroutine
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from houston_console.app.comfort.commands import Command, Commands
from houston_console.app.dialogs import Confirm
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import Line, line
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.link import Link
from houston_console.app.messages import Failed, GoTo, Told, guarded, say
from houston_console.app.rollouts.selector import Facts
from houston_console.app.source import RolloutSource
from houston_console.app.speaking import guiding, plans, snippets
from houston_console.app.speaking.composer import ENDED_WORDS, Composer
from houston_console.app.speaking.entries import Entry, moved, queue
from houston_console.app.speaking.lines import fate_lines, heard_lines
from houston_console.app.speaking.manner import WORDS, is_command
from houston_console.app.speaking.outbox import Draft, Outbox
from houston_console.app.speaking.plans import Followed
from houston_console.app.speaking.queue import Queue
from houston_shared.errors import HoustonError
from houston_shared.person import myself
from houston_shared.records import ENDED
from houston_shared.store.queries import guidance
from houston_shared.store.queries.file_history import files
from houston_shared.store.queries.rollouts import Rollout

HEARD_LINES = 3
"""Lines of the exact text that are shown while somebody writes."""
READ_LINES = 9
"""The same, and what followed, for a message of the queue."""
STEPS = 20
"""The last steps, whose numbers a word can be finished with."""
KEEP = "keep"


class GuidanceArea(ErrorBoundary, Vertical):
    """The area below the trajectory."""

    class Compose(Message):
        """Somebody wants to write."""

    def __init__(self, outbox: Outbox, link: Link, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.composer = Composer(outbox, self._said, self._known, id="composer")
        self.heard, self.queue = Facts(id="heard"), Queue(id="queue")
        self.source: RolloutSource | None = None
        self._outbox = outbox
        self._link = link
        self._followed: Followed | None = None

    def compose(self) -> ComposeResult:
        """Composer, what the agent will read, queue."""
        yield self.composer
        yield self.heard
        yield self.queue

    def on_mount(self) -> None:
        """Name the area."""
        self.dress()

    def turn_to(self, source: RolloutSource) -> None:
        """Speak to another rollout from now on; what was said to it is not read yet."""
        self.source = source
        self.composer.open(source.rollout)
        self.queue.unread()
        self.dress()

    def stand(self, rollout: Rollout | None) -> None:
        """How the rollout stands: one that has ended hears nothing."""
        self.composer.open_ears(rollout is None or rollout.state not in ENDED)

    async def refresh_queue(self) -> None:
        """Show what was said, sent or not. Raises HoustonError."""
        source = self.source
        if source is not None:
            stored = await source.read(guidance.of_rollout(source.rollout))
            author = myself(self._link.claimed).name
            unsent = self._outbox.entries(source.rollout, author)
            if source is self.source:
                self.queue.take(queue(stored, unsent))
                self.dress()

    # --- what the composer may ask ------------------------------------------------------------

    async def _said(self) -> list[str]:
        """What this person said before."""
        source, name = self.source, myself(self._link.claimed).name
        return await source.read(plans.said_by(name)) if source else []

    async def _known(self) -> list[str]:
        """Files that the agent changed, the newest first, then its last steps."""
        if self.source is None:
            return []
        changed = await self.source.read(files(self.source.rollout))
        newest = (await self.source.changes(0)).steps
        steps = [f"step {number}" for number in range(newest, max(0, newest - STEPS), -1)]
        return [one.path for one in changed] + steps

    def on_composer_snippets(self) -> None:
        """Texts that are said again and again."""
        path, text = snippets.own_file(), self.composer.text.strip()
        try:
            found = snippets.kept(path)
        except OSError as problem:
            say(self, Told(f"{path} cannot be read: {problem.strerror}"))
            return
        offered = [Command(" ".join(one.split()), str(at)) for at, one in enumerate(found)]
        if text and text not in found:
            offered.append(Command("keep what is written here, to say it again", KEEP))
        if not offered:
            say(self, Told(f"Nothing is kept in {path} yet: write something, then this key."))
            return
        self.app.push_screen(
            Commands(offered, "Snippets"), lambda chosen: self._take_snippet(chosen, found)
        )

    def _take_snippet(self, chosen: Command | None, found: list[str]) -> None:
        if chosen is None:
            return
        if chosen.action != KEEP:
            self.composer.insert(found[int(chosen.action)])
            return
        path = snippets.own_file()
        try:
            snippets.keep(path, self.composer.text)
        except OSError as problem:
            say(self, Told(f"It is not kept: {path}: {problem.strerror}"))
        else:
            say(self, Told(f"Kept in {path}.", good=True))

    # --- what the agent will read ------------------------------------------------------------

    def dress(self) -> None:
        """Say what would happen on Enter, and what the agent would read."""
        edits, waiting = self.composer.draft.edits, self.queue.waiting
        name = self.composer.draft.rollout
        whom = f" to {name}" if name else ""
        title(self, f"5 Editing what waits for {name}" if edits else f"5 Say{whom}")
        manner = WORDS if is_command(self.composer.text) else ""
        told = [one for one in (manner, f"{waiting} waiting" if waiting else "") if one]
        subtitle(self, line("   ".join(told)))
        lines = self._heard_lines()
        self.heard.display = bool(lines)
        self.heard.styles.height = max(1, len(lines))
        self.heard.put(lambda width: lines)

    def _heard_lines(self) -> list[Line]:
        under, width = self.queue.under_cursor, self.content_size.width
        if not self.queue.has_focus:
            text = self.composer.text
            return heard_lines(text, width, HEARD_LINES) if text.strip() else []
        if under is None:
            return []
        fate = fate_lines(under, self._followed, width)
        never = under.state in ("withdrawn", "refused")
        return heard_lines(under.text, width, max(2, READ_LINES - len(fate)), never) + fate

    async def _read_on(self) -> None:
        """Read what the agent did after it heard the message under the cursor."""
        source, under = self.source, self.queue.under_cursor
        if source is None or under is None or under.step is None or not self.queue.has_focus:
            return
        self._followed = await source.read(plans.followed(source.rollout, under.id, under.step))
        self.dress()

    @on(Composer.Changed)
    @on(Queue.Moved)
    def _text_changed(self) -> None:
        self.dress()
        self._later(self._read_on())

    def on_resize(self) -> None:
        """What the agent would read is wrapped for the width there is."""
        self.dress()

    def on_descendant_focus(self) -> None:
        """Which of the two has the focus."""
        self.dress()
        self._later(self._read_on())

    def on_descendant_blur(self) -> None:
        """The same when it leaves."""
        self.dress()

    # --- sending -----------------------------------------------------------------------------

    def on_composer_lost(self, message: Composer.Lost) -> None:
        """The disk of the state folder is full, or the like."""
        say(self, Told(f"What you type is only on this screen: {message.problem}"))

    def on_composer_unheard(self) -> None:
        """The rollout has ended; what was typed stays as a draft."""
        say(self, Told(ENDED_WORDS))

    def on_composer_posted(self) -> None:
        """Send what is stored, and show it either way."""
        self._later(self._deliver())

    async def _deliver(self) -> None:
        before = {one.id for one in self.queue.entries if one.state == "refused"}
        await self._link.send_waiting()
        await self.refresh_queue()
        refused = [one for one in self.queue.entries if one.state == "refused"]
        if refused and refused[-1].id not in before:
            say(self, Told(refused[-1].reason))
        if self._link.state != "live":
            words = "Kept as unsent: it is sent as soon as the daemon is there."
            say(self, Told(words))

    def on_composer_asked(self, message: Composer.Asked) -> None:
        """An edit is for the daemon to agree to; interrupting, for the person to confirm."""
        draft = message.draft
        if draft.edits:
            self._later(self._change(draft))
            return
        question = "Interrupt what the agent is doing now, and say this?"
        self.app.push_screen(
            Confirm(question, draft.text),
            lambda yes: self.composer.store("interrupt") if yes else None,
        )

    async def _change(self, draft: Draft) -> None:
        try:
            words = await guiding.edit(self._link, draft)
        except HoustonError as problem:
            await self.refresh_queue()
            self._again(draft, problem)
            return
        self.composer.taken(draft)
        say(self, Told(words, good=True))
        await self.refresh_queue()

    def _again(self, draft: Draft, problem: HoustonError) -> None:
        """What was typed stays; the next Enter does what can still be done with it."""
        now = next((one for one in self.queue.entries if one.id == draft.edits), None)
        newer = now is not None and now.state == "queued" and now.revision != draft.revision
        if now is None or (now.state == "queued" and not newer):
            say(self, Failed(problem))
            return
        words = self.composer.text
        if newer:
            self.composer.write(Draft(draft.rollout, words, draft.edits, now.revision))
            told = "It was changed meanwhile, and reads now as below. enter: your words instead."
        else:
            self.composer.write(Draft(draft.rollout, words))
            told = f"It is {now.state} already, as it was. enter: say your words as a new message."
        say(self, Told(told))

    # --- the queue ---------------------------------------------------------------------------

    def on_queue_asked(self, message: Queue.Asked) -> None:
        """Withdraw, edit, or go to where it was heard."""
        entry = message.entry
        if message.what == "go":
            if entry.step is not None:
                say(self, GoTo(entry.step))
        elif entry.state in ("unsent", "refused"):
            if message.what == "withdraw" or self._edit(entry):
                self._outbox.done(entry.id)
                self._later(self.refresh_queue())
        elif entry.state != "queued":
            words = f"It is {entry.state} already; only queued guidance can change."
            say(self, Told(words))
        elif message.what == "withdraw":
            self._ask_withdraw(entry)
        elif message.what in ("earlier", "later"):
            self._later(self._move(entry, 1 if message.what == "later" else -1))
        else:
            self._edit(entry)

    async def _move(self, entry: Entry, by: int) -> None:
        seen, order = moved(self.queue.entries, entry.id, by)
        if self.source is not None and order != seen:
            words = await guiding.reorder(self._link, self.source.rollout, seen, order)
            say(self, Told(words, good=True))
            await self.refresh_queue()

    def _ask_withdraw(self, entry: Entry) -> None:
        """One's own words are taken back at once; those of others only when that is meant."""
        if entry.author == myself(self._link.claimed).name:
            self._later(self._withdraw(entry))
            return
        self.app.push_screen(
            Confirm(f"Take back what {entry.author} said?", entry.text),
            lambda yes: self._later(self._withdraw(entry)) if yes else None,
        )

    async def _withdraw(self, entry: Entry) -> None:
        say(self, Told(await guiding.withdraw(self._link, entry), good=True))
        await self.refresh_queue()

    def _edit(self, entry: Entry) -> bool:
        """Have a message in the composer, unless something stands there that would be lost."""
        edits = entry.id if entry.state == "queued" else ""
        draft = self.composer.draft
        if draft.text.strip() and draft.edits != edits:
            say(self, Told("There is a draft in the composer: send it or clear it first."))
            return False
        self.composer.write(Draft(draft.rollout, entry.text, edits, entry.revision))
        say(self, self.Compose())
        return True

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what waits for the daemon or the database; no key waits for it."""
        self.run_worker(guarded(self, work), group="guidance")
