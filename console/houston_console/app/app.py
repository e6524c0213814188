"""The console: puts the areas together and brings what changed to them.

Reads go through one asynchronous reader, wake-ups through `pump`, words to the daemon through
`link`; widgets know none of the three.
"""

import time
from pathlib import Path
from typing import Any, Literal

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Input, TextArea

from houston_console.app.bars import HintBar, StatusBar, TabBar
from houston_console.app.dialogs import Confirm, Help
from houston_console.app.drawing.palette import DARK, DEFAULT, LIGHT
from houston_console.app.driver import SafeDriver, last_words
from houston_console.app.files.area import Files
from houston_console.app.keys import Area, bindings
from houston_console.app.link import Link
from houston_console.app.messages import Failed, GoTo, Told
from houston_console.app.pump import Pump
from houston_console.app.rollouts.plans import overview
from houston_console.app.rollouts.selector import RolloutList, Selector
from houston_console.app.source import RolloutSource
from houston_console.app.speaking import guiding
from houston_console.app.speaking.area import GuidanceArea
from houston_console.app.speaking.composer import Composer
from houston_console.app.speaking.guiding import Action
from houston_console.app.speaking.outbox import Outbox
from houston_console.app.speaking.queue import Queue
from houston_console.app.state import ConsoleState, LinkState
from houston_console.app.terminals.area import Terminals
from houston_console.app.transcript.area import TrajectoryArea
from houston_shared.config import Loaded
from houston_shared.errors import HoustonError
from houston_shared.safe_text import safe
from houston_shared.store.async_reader import AsyncReader
from houston_shared.wire import Notice

NARROW = 120
"""Columns below which one area is shown at a time."""
LOW = 30
"""Lines below which one area is shown at a time."""
COPY_SECONDS = 1.0
"""How long after a key the clipboard may be written for it."""
AREAS: tuple[Area, ...] = ("rollouts", "trajectory", "terminals", "files", "composer", "queue")


class HoustonConsole(App[None]):
    """One annotator's screen on one home."""

    CSS_PATH = "console.tcss"
    BINDINGS = bindings("app")
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, loaded: Loaded, rollout: str = "", folder: Path | None = None) -> None:
        """rollout: the one to open, a whole id. folder: where drafts are kept (for tests)."""
        super().__init__(driver_class=SafeDriver)
        self.error_console = last_words()
        self._pressed_at = -COPY_SECONDS
        self.animation_level = "none"
        self.loaded = loaded
        self.state = ConsoleState()
        self.reader = AsyncReader(loaded.home)
        self.outbox = Outbox(loaded.home, folder)
        self.link = Link(loaded.home, self.outbox, self._linked, loaded.config.console.name)
        self.pump = Pump(
            loaded.home, self.reader, self.catch_up, self._announced, self._cannot_read
        )
        self.status, self.tabs = StatusBar(id="status"), TabBar(id="tabs")
        self.hints = HintBar(id="hints")
        self.selector = Selector(id="rollouts")
        self.trajectory = TrajectoryArea(loaded.home, self.reader, id="trajectory")
        self.guidance = GuidanceArea(self.outbox, self.link, id="guidance")
        self.files, self.terminals = Files(id="files"), Terminals(id="terminals")
        self.source: RolloutSource | None = None
        self._wanted = rollout
        self._shown_seq = 0
        self._stage: Literal["unread", "reading", "open"] = "unread"
        """How far the rollout that was turned to is; what could not be read is tried again."""
        self._area: Area = "trajectory"
        self._problem = ""

    def compose(self) -> ComposeResult:
        """Five areas between two lines."""
        yield self.status
        yield self.tabs
        with Horizontal(id="areas"):
            yield self.selector
            with Vertical(id="centre"):
                yield self.trajectory
                yield self.guidance
            with Vertical(id="right"):
                yield self.files
                yield self.terminals
        yield self.hints

    async def on_mount(self) -> None:
        """Colours first, then everything that goes on for ever."""
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        wanted = self.loaded.config.console.theme
        self.theme = wanted if wanted in self.available_themes else DEFAULT
        self._go("trajectory")
        for task in (self.pump.listen(), self.pump.run(), self.link.run()):
            self.run_worker(task, group="background")
        self.set_interval(1.0, self._say)

    async def on_unmount(self) -> None:
        """Let go of files and sockets."""
        await self.link.close()
        await self.reader.close()

    # --- what changed ------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Bring everything that is shown up to the newest commit. Raises HoustonError."""
        seen = await self.reader.run(overview(self.state.seq))
        changed = self.state.take(seen)
        self._problem = ""
        if self.source is None:
            first = self._wanted or self.state.first_choice()
            if first in self.state.rollouts:
                await self.open_rollout(first)
        elif self._stage == "open":
            await self._refresh_rollout(self.source)
        elif self._stage == "unread":
            await self._read_rollout(self.source)
        if changed:
            self.selector.take(self.state)
        self._say()

    async def open_rollout(self, rollout: str) -> None:
        """Show another rollout everywhere. Raises HoustonError."""
        await self._read_rollout(self._turn_to(rollout))

    def _turn_to(self, rollout: str) -> RolloutSource:
        """From now on keys are for `rollout`, before anything of it was read."""
        source = RolloutSource(self.reader, rollout)
        self.source, self.state.selected, self._stage = source, rollout, "reading"
        self.guidance.turn_to(source)
        self.trajectory.turn_to(source)
        self._say()
        return source

    async def _read_rollout(self, source: RolloutSource) -> None:
        self._stage = "reading"
        try:
            changes = await source.changes(0)
            if source is self.source:
                self._shown_seq = changes.seq
                await self.trajectory.open(source, changes.steps)
                await self.guidance.refresh_queue()
        except HoustonError:
            if source is self.source:
                self._stage = "unread"
            raise
        if source is self.source:
            self._stage = "open"
            await self._show_around(source)

    async def _show_around(self, source: RolloutSource) -> None:
        """The areas around the trajectory of a rollout that was read."""
        self.files.open(source)
        await self.files.refresh_content(self.trajectory.transcript.cursor)
        await self.terminals.open(source, self.trajectory.transcript.opening.host_root)
        self.selector.take(self.state)
        self.link.look_at(source.rollout)
        self._say()

    async def _refresh_rollout(self, source: RolloutSource) -> None:
        changes = await source.changes(self._shown_seq)
        if source is not self.source or changes.seq == self._shown_seq:
            return
        transcript = self.trajectory.transcript
        if changes.touched or changes.steps != transcript.steps:
            await transcript.grew(changes.touched, changes.steps)
        self._shown_seq = changes.seq
        if not transcript.opening.system:
            transcript.opened(await source.opening())
        await self.guidance.refresh_queue()
        await self.files.refresh_content(transcript.cursor)
        await self.terminals.refresh_names()

    def _announced(self, notice: Notice) -> None:
        self.state.announced = max(self.state.announced, notice.seq)

    def _cannot_read(self, problem: HoustonError) -> None:
        if str(problem) != self._problem:
            self._problem = str(problem)
            self.tell(problem)

    def _linked(self, state: LinkState, reason: str) -> None:
        before, self.state.link = self.state.link, state
        self.state.link_reason = reason
        self.selector.take(self.state)
        if before == "live" and state != "live":
            self._tell("The daemon is gone: reading only, guidance waits here as unsent.", False)
        elif before == "down" and state == "live":
            self._tell("The daemon is back.", True)
        self.pump.wake()
        self.run_worker(self._requeue(), group="queue", exclusive=True)

    async def _requeue(self) -> None:
        try:
            await self.guidance.refresh_queue()
        except HoustonError as problem:
            self._cannot_read(problem)

    # --- what is said ------------------------------------------------------------------------

    def _say(self) -> None:
        home = str(self.loaded.home.path).replace(str(Path.home()), "~", 1)
        self.status.take(self.state, home)
        self.trajectory.dress(self.state.current, self.state.link == "down")
        self.guidance.stand(self.state.current)

    def _tell(self, text: str, good: bool) -> None:
        self.hints.tell(text, "success" if good else "warning")

    def tell(self, problem: HoustonError) -> None:
        """Show an error: cause, effect, next."""
        follow = f"  next: {problem.next}" if problem.next else ""
        text = " ".join(part for part in (problem.cause, problem.effect) if part)
        self.hints.tell(text + follow, "error")

    def on_told(self, message: Told) -> None:
        """An area has something to say."""
        self._tell(message.text, message.good)

    def on_failed(self, message: Failed) -> None:
        """Something could not be read."""
        self.tell(message.problem)

    def on_transcript_view_moved(self) -> None:
        """The step at the cursor is another: its files too."""
        self._say()
        self.files.follow(self.trajectory.transcript.cursor)

    def on_key(self, event: events.Key) -> None:
        """What was told has been read."""
        self.hints.quiet()

    # --- the clipboard -----------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Keys are noted: only they may write to the clipboard."""
        if isinstance(event, events.Key):
            self._pressed_at = time.monotonic()
        await super().on_event(event)

    def may_copy(self) -> bool:
        """Whether a key was just pressed; one key copies once."""
        asked = time.monotonic() - self._pressed_at < COPY_SECONDS
        self._pressed_at = -COPY_SECONDS
        return asked

    def copy_to_clipboard(self, text: str) -> None:
        """Copy as shown: what is pasted elsewhere holds no control character either."""
        super().copy_to_clipboard(safe(text))

    # --- areas -------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """All five areas, or one at a time."""
        narrow = event.size.width < NARROW or event.size.height < LOW
        self.screen_stack[0].set_class(narrow, "-narrow")
        self._say()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line of keys follows the focus."""
        area = _area_of(event.widget)
        if area is not None:
            self._mark(area)

    def _mark(self, area: Area) -> None:
        self._area = area
        for name in AREAS:
            self.screen_stack[0].set_class(name == area, f"-on-{name}")
        self.tabs.take(area)
        self.hints.area(area)

    def _go(self, area: Area) -> None:
        self._mark(area)
        if area == "files":
            self.call_after_refresh(self._show_files)
            return
        targets: dict[Area, Widget] = {
            "rollouts": self.selector.rollouts,
            "trajectory": self.trajectory.transcript,
            "terminals": self.terminals.text,
            "queue": self.guidance.queue,
        }
        # At once, not with the next message: keys that follow belong there already.
        self.screen_stack[0].set_focus(targets.get(area, self.guidance.composer))

    async def _show_files(self) -> None:
        await self.files.refresh_content(self.trajectory.transcript.cursor)
        self.files.listed.focus()

    def action_area(self, area: Area) -> None:
        """Go to an area."""
        self._go(area)

    def action_ask(self, kind: str) -> None:
        """Ask for words to search, or for a step."""
        self._mark("trajectory")
        self.trajectory.ask(kind)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters are letters while somebody types."""
        if len(self.screen_stack) > 1 and action in ("area", "ask", "next_area", "steer"):
            return False  # a question, the eye or the help is in front of them
        typing = isinstance(self.focused, (TextArea, Input))
        return not (typing and action in ("area", "ask"))

    def action_next_area(self, by: int) -> None:
        """The area after this one, or before."""
        self._go(AREAS[(AREAS.index(self._area) + by) % len(AREAS)])

    async def on_rollout_list_chosen(self, message: RolloutList.Chosen) -> None:
        """A click on a rollout."""
        await self._choose(message.rollout)

    async def action_choose_rollout(self) -> None:
        """Open the rollout under the selector's cursor; keys behind this one wait for it."""
        under = self.selector.rollouts.under_cursor
        if under is not None and under.rollout is not None:
            await self._choose(under.rollout.id)

    async def _choose(self, rollout: str) -> None:
        """Go to another rollout's steps: first the focus and the composer, then what is read."""
        self._go("trajectory")
        try:
            await self.open_rollout(rollout)
        except HoustonError as problem:
            self.tell(problem)

    async def on_go_to(self, message: GoTo) -> None:
        """From a change, a search or a message to its step."""
        await self.trajectory.transcript.go_to(message.step, open=True)
        self._go("trajectory")

    async def action_help(self) -> None:
        """Every key."""
        await self.push_screen(Help())

    # --- steering ---------------------------------------------------------------

    def on_composer_leave(self) -> None:
        """Back to the steps."""
        self._go("trajectory")

    def on_guidance_area_compose(self) -> None:
        """Somebody wants to write."""
        self._go("composer")

    def action_steer(self, action: Action) -> None:
        """Pause, resume or cancel the rollout that is open; cancelling asks first."""
        rollout = self.state.selected
        if not rollout:
            return
        if action != "cancel":
            self.run_worker(self._steer(rollout, action), group="asking")
            return
        self.push_screen(
            Confirm(f"End rollout {rollout} for good? It cannot be resumed."),
            lambda yes: self._cancel(rollout) if yes else None,
        )

    def _cancel(self, rollout: str) -> None:
        self.run_worker(self._steer(rollout, "cancel"), group="asking")

    async def _steer(self, rollout: str, action: Action) -> None:
        try:
            self._tell(await guiding.steer(self.link, rollout, action), True)
        except HoustonError as problem:
            self.tell(problem)


def _area_of(widget: Any) -> Area | None:
    """The area that a widget belongs to."""
    for node in widget.ancestors_with_self:
        if isinstance(node, Composer):
            return "composer"
        if isinstance(node, Queue):
            return "queue"
        if node.id in AREAS:
            found: Area = node.id
            return found
    return None
