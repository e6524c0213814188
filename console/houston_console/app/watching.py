"""The screen on which one rollout is watched and guided: five areas, one beside the other.

It brings to each area what changed and lets them find each other; what an area shows is its own.
"""

from typing import Any, Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Input, TextArea

from houston_console.app.bars import TabBar
from houston_console.app.dialogs import Confirm
from houston_console.app.files.area import Files
from houston_console.app.keys import Area, bindings
from houston_console.app.link import Link
from houston_console.app.messages import GoTo
from houston_console.app.rollouts.selector import RolloutList, Selector
from houston_console.app.screen import HoustonScreen
from houston_console.app.source import RolloutSource
from houston_console.app.speaking import guiding
from houston_console.app.speaking.area import GuidanceArea
from houston_console.app.speaking.composer import Composer
from houston_console.app.speaking.guiding import Action
from houston_console.app.speaking.outbox import Outbox
from houston_console.app.speaking.queue import Queue
from houston_console.app.state import ConsoleState
from houston_console.app.terminals.area import Terminals
from houston_console.app.transcript.area import TrajectoryArea
from houston_shared.errors import HoustonError
from houston_shared.store.async_reader import AsyncReader

NARROW = 120
"""Columns below which one area is shown at a time."""
LOW = 30
"""Lines below which one area is shown at a time."""
AREAS: tuple[Area, ...] = ("rollouts", "trajectory", "terminals", "files", "composer", "queue")


class WatchScreen(HoustonScreen):
    """One rollout."""

    BINDINGS = bindings("watch")

    def __init__(
        self,
        state: ConsoleState,
        reader: AsyncReader,
        outbox: Outbox,
        link: Link,
        home: str,
        rollout: str = "",
    ) -> None:
        """rollout: the one to open first, a whole id; the choice of `state` when empty."""
        super().__init__(state, home)
        self.reader, self.link = reader, link
        self.tabs = TabBar(id="tabs")
        self.selector = Selector(id="rollouts")
        self.trajectory = TrajectoryArea(link, reader, id="trajectory")
        self.guidance = GuidanceArea(outbox, link, id="guidance")
        self.files, self.terminals = Files(id="files"), Terminals(id="terminals")
        self.source: RolloutSource | None = None
        self._wanted = rollout
        self._shown_seq = 0
        self._stage: Literal["unread", "reading", "open"] = "unread"
        """How far the rollout that was turned to is; what could not be read is tried again."""
        self._area: Area = "trajectory"

    def body(self) -> ComposeResult:
        """Five areas."""
        yield self.tabs
        with Horizontal(id="areas"):
            yield self.selector
            with Vertical(id="centre"):
                yield self.trajectory
                yield self.guidance
            with Vertical(id="right"):
                yield self.files
                yield self.terminals

    def on_mount(self) -> None:
        """Begin at the steps."""
        self._go("trajectory")

    # --- what changed ------------------------------------------------------------------------

    async def caught_up(self, changed: bool) -> None:
        """Read what is new of the rollout that is open. Raises HoustonError."""
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

    async def open_rollout(self, rollout: str) -> None:
        """Show another rollout everywhere. Raises HoustonError."""
        await self._read_rollout(self._turn_to(rollout))

    def _turn_to(self, rollout: str) -> RolloutSource:
        """From now on keys are for `rollout`, before anything of it was read."""
        source = RolloutSource(self.reader, rollout)
        self.source, self.state.selected, self._stage = source, rollout, "reading"
        self.guidance.turn_to(source)
        self.trajectory.turn_to(source)
        self.say()
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
        self.say()

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

    def linked(self) -> None:
        """What waited may have been taken."""
        self.selector.take(self.state)
        self.run_worker(self._requeue(), group="queue", exclusive=True)

    async def _requeue(self) -> None:
        try:
            await self.guidance.refresh_queue()
        except HoustonError as problem:
            self.told(problem)

    def say(self) -> None:
        """The line at the top, and how the rollout stands."""
        super().say()
        self.trajectory.dress(self.state.current, self.state.link == "down")
        self.guidance.stand(self.state.current)

    def on_transcript_view_moved(self) -> None:
        """The step at the cursor is another: its files too."""
        self.say()
        self.files.follow(self.trajectory.transcript.cursor)

    @property
    def area(self) -> Area:
        """The area with the focus."""
        return self._area

    # --- areas -------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """All five areas, or one at a time."""
        narrow = event.size.width < NARROW or event.size.height < LOW
        self.set_class(narrow, "-narrow")
        self.say()
        self.call_after_refresh(self._keep_focus)

    def _keep_focus(self) -> None:
        """What lost its place with the new size lost the focus too."""
        if self.focused is None:
            self._go(self._area)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line of keys follows the focus."""
        area = _area_of(event.widget)
        if area is not None:
            self._mark(area)

    def _mark(self, area: Area) -> None:
        self._area = area
        for name in AREAS:
            self.set_class(name == area, f"-on-{name}")
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
        self.set_focus(targets.get(area, self.guidance.composer))

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
        typing = isinstance(self.focused, (TextArea, Input))
        return not (typing and action in ("area", "ask"))

    def action_next_area(self, by: int) -> None:
        """The area after this one, or before."""
        self._go(AREAS[(AREAS.index(self._area) + by) % len(AREAS)])

    async def on_rollout_list_chosen(self, message: RolloutList.Chosen) -> None:
        """A click on a rollout."""
        await self.choose(message.rollout)

    async def action_choose_rollout(self) -> None:
        """Open the rollout under the selector's cursor; keys behind this one wait for it."""
        under = self.selector.rollouts.under_cursor
        if under is not None and under.rollout is not None:
            await self.choose(under.rollout.id)

    async def choose(self, rollout: str) -> None:
        """Go to another rollout's steps: first the focus and the composer, then what is read."""
        self._go("trajectory")
        try:
            await self.open_rollout(rollout)
        except HoustonError as problem:
            self.told(problem)

    async def on_go_to(self, message: GoTo) -> None:
        """From a change, a search, a message or a permalink to its step."""
        if message.rollout not in ("", self.state.selected):
            try:
                await self.open_rollout(message.rollout)
            except HoustonError as problem:
                self.told(problem)
                return
        await self.trajectory.transcript.go_to(message.step, open=True)
        self._go("trajectory")

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
        self.app.push_screen(
            Confirm(f"End rollout {rollout} for good? It cannot be resumed."),
            lambda yes: self._cancel(rollout) if yes else None,
        )

    def _cancel(self, rollout: str) -> None:
        self.run_worker(self._steer(rollout, "cancel"), group="asking")

    async def _steer(self, rollout: str, action: Action) -> None:
        try:
            self.tell(await guiding.steer(self.link, rollout, action), "success")
        except HoustonError as problem:
            self.told(problem)


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
