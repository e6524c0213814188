"""The screen on which one rollout is watched and guided: five panes side by side.

Brings to each pane what changed and lets them find each other; on a narrow terminal it shows one
at a time. What a pane shows is its own.
"""

from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from houston_console.app.claim_actions import ClaimActions
from houston_console.app.console_state import ConsoleState
from houston_console.app.daemon_link import DaemonLink, SteeringAction
from houston_console.app.key_bindings import Area, bindings_for
from houston_console.app.rollout_actions import SteeringActions
from houston_console.app.undo_offers import UndoOffers
from houston_console.panes.files_pane import FilesPane
from houston_console.panes.guidance_composer import Composer
from houston_console.panes.guidance_outbox import GuidanceOutbox
from houston_console.panes.guidance_pane import GuidancePane, GuidanceQueue
from houston_console.panes.jobs_pane import JobsPane
from houston_console.panes.since_visit_pane import SinceList, SinceVisitPane
from houston_console.panes.terminals_pane import TerminalsPane
from houston_console.screens.base_screen import (
    GoToStep,
    GoToTerminalLine,
    HoustonScreen,
    OpenPromptInspector,
    TabBar,
)
from houston_console.screens.prompt_inspector import PromptInspector
from houston_console.screens.rollout_selector import RolloutList, RolloutSelector
from houston_console.transcript.trajectory_pane import TrajectoryPane
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.widgets.list_filter import FilteredList, FilterPrompt
from houston_shared.command_arguments import parse_permalink
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES
from houston_shared.store import (
    presence_queries,
    process_reward_queries,
    removed_data_queries,
)
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.presence_queries import Person

WATCH_AREAS: tuple[Area, ...] = (
    "rollouts",
    "trajectory",
    "terminals",
    "files",
    "composer",
    "queue",
)
"""In the order of the keys that go through them."""


def area_of(widget: Widget) -> Area | None:
    """The area that a widget belongs to."""
    for node in widget.ancestors_with_self:
        if isinstance(node, Composer):
            return "composer"
        if isinstance(node, GuidanceQueue):
            return "queue"
        if node.id in WATCH_AREAS:
            area: Area = node.id
            return area
    return None


NARROW_COLUMNS = 120
"""Columns below which one area is shown at a time."""
LOW_LINES = 30
"""Lines below which one area is shown at a time."""


class WatchScreen(HoustonScreen):
    """The screen of one rollout."""

    AUTO_FOCUS = "#transcript"
    BINDINGS = [*bindings_for("watch"), *bindings_for("whole")]

    def __init__(
        self,
        state: ConsoleState,
        reader: AsyncReader,
        outbox: GuidanceOutbox,
        link: DaemonLink,
        undo_offers: UndoOffers,
        home: str,
        rollout: str,
        background_reader: AsyncReader,
        person: Person,
    ) -> None:
        """rollout: the one to open first, `id` or `id@step`; when empty, the only one there is.

        background_reader: a reader that no key waits for. person: who sits here.
        """
        super().__init__(state, home)
        self.reader, self.link = reader, link
        self.tabs = TabBar(id="tabs")
        self.selector = RolloutSelector(id="rollouts")
        self.since = SinceVisitPane(background_reader, person, id="since")
        self.jobs = JobsPane(background_reader, id="jobs")
        self.trajectory = TrajectoryPane(link, undo_offers, reader, id="trajectory")
        self.guidance = GuidancePane(outbox, link, id="guidance")
        self.files = FilesPane(id="files")
        self.terminals = TerminalsPane(link.home.path, id="terminals")
        self.source: RolloutSource | None = None
        self._background_reader = background_reader
        self._claims, self._steering = (
            ClaimActions(link, undo_offers, self),
            SteeringActions(link, undo_offers, self),
        )
        self._first_place = parse_permalink(rollout)
        self._shown_seq = 0
        self._stage: Literal["unread", "reading", "open"] = "unread"
        """How far the rollout that was turned to is; what could not be read is tried again."""
        self.area: Area = "trajectory"

    def compose_body(self) -> ComposeResult:
        """Compose the five panes."""
        yield self.tabs
        with Horizontal(id="areas"):
            yield self.selector
            with Vertical(id="centre"):
                yield self.since
                yield self.jobs
                yield self.trajectory
                yield self.guidance
            with Vertical(id="right"):
                yield self.files
                yield self.terminals

    def on_mount(self) -> None:
        """Focus the trajectory."""
        self._focus_area("trajectory")

    def on_screen_resume(self) -> None:
        """Home has a composer, too: what was written and sent there is taken up."""
        super().on_screen_resume()
        self.guidance.composer.take_up_draft()
        self.run_latest(self._refresh_queue, "queue")

    # --- what changed ------------------------------------------------------------------------

    async def refresh_from_state(self, changed: bool) -> None:
        """Read what is new of the rollout that is open. Raises HoustonError."""
        if self.source is None:
            first = self._first_place.rollout or self.state.only_one()
            if first in self.state.rollouts:
                await self.open_rollout(first)
                if self._first_place.first:
                    await self.on_go_to_step(GoToStep(self._first_place.first))
        elif self._stage == "open":
            await self._refresh_rollout(self.source)
        elif self._stage == "unread":
            await self._read_rollout(self.source)
        if changed:
            self.selector.show_state(self.state)

    async def open_rollout(self, rollout: str) -> None:
        """Show another rollout everywhere. Raises HoustonError."""
        await self._read_rollout(self._switch_rollout(rollout))

    def _switch_rollout(self, rollout: str) -> RolloutSource:
        """From now on keys are for `rollout`, before anything of it was read."""
        source = RolloutSource(self.reader, rollout)
        self.source, self.state.selected, self._stage = source, rollout, "reading"
        self.guidance.switch_rollout(source)
        self.trajectory.switch_rollout(source)
        self.since.switch_rollout(rollout)
        self.jobs.switch_rollout(rollout)
        self.files.switch_rollout(source)
        self.terminals.switch_rollout(source)
        self.refresh_status()
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
        await self.files.refresh_content(self.trajectory.transcript.cursor)
        await self.terminals.refresh_names()
        self.terminals.follow(self.trajectory.transcript.cursor)
        self.selector.show_state(self.state)
        self.link.set_location(*self.current_location)
        self.since.open(self._shown_seq)
        self.show_board()
        self.refresh_status()
        current = self.state.open_rollout
        ended = current is not None and current.state in ENDED_STATES
        if ended and (
            notice := await source.read(removed_data_queries.describe_archived(source.rollout))
        ):
            self.show_message(notice, "warning")

    # --- since when, and who is here ---------------------------------------------------------

    def show_board(self) -> None:
        """Order, people and what attention has cost may be others."""
        self.selector.show_state(self.state)
        need = self.state.need_of(self.state.selected)
        self.since.show_people(need.overview if need else None, self.state.person)
        self.jobs.show_overview(need.overview if need else None)
        self.on_rollout_list_moved()

    def on_since_visit_pane_read(self) -> None:
        """Since when was read: a note may be new to this person."""
        self.show_board()

    def on_rollout_list_moved(self) -> None:
        """What attention the rollout under the cursor has cost is read for its card."""
        self.run_latest(self._read_cost, "cost")

    async def _read_cost(self) -> None:
        under = self.selector.rollouts.under_cursor
        try:
            if under is not None and under.id:
                reader = self._background_reader
                costs = await reader.run(presence_queries.read_attention_costs([under.id]))
                rewards = await reader.run(process_reward_queries.list_step_rewards(under.id))
                self.selector.show_costs(costs, {under.id: rewards})
        except HoustonError as problem:
            self.show_error(problem)

    def note_key(self, key: str) -> None:
        """Whoever comes back to a console that was left open is told what happened meanwhile."""
        if self._stage == "open":
            self.since.note_key(self._shown_seq)
            self._claims.mark_read(self.since.shown_note)

    @property
    def current_location(self) -> tuple[str, int]:
        """What is looked at, once it was read."""
        if self._stage != "open":
            return "", 0
        return self.state.selected, self.trajectory.transcript.cursor

    async def action_since(self) -> None:
        """Unfold what happened since this person was here, or fold it."""
        if not await self.since.unfold():
            self._focus_area("trajectory")

    def action_jobs(self) -> None:
        """List the commands that the agent left running, and go to one."""
        self.run_latest(self.jobs.list_jobs, "jobs")

    async def action_walk(self, by: int) -> None:
        """The next event since this person was here, or the one before."""
        if step := self.since.walk(by, self.trajectory.transcript.cursor):
            self._focus_area("trajectory")
            await self.trajectory.transcript.go_to(step, open=True)

    def action_claim(self, back: bool = False) -> None:
        """Look after this rollout, or hand it over; back: no longer, and nothing is asked."""
        need = self.state.need_of(self.state.selected)
        if need is not None:
            do = self._claims.take_back if back else self._claims.toggle
            do(self.state.selected, need.overview.holding, self.state)

    def action_branch(self) -> None:
        """Start siblings from the step at the cursor."""
        self._steering.branch(self.state.selected, self.trajectory.transcript.cursor)

    def action_ask_critic(self) -> None:
        """Have a critic draft what to say to this agent."""
        self.guidance.ask_critic()

    def action_decide_draft(self, decision: str) -> None:
        """Say, edit or turn down what a critic drafted."""
        self.guidance.decide_draft(decision)

    async def _refresh_rollout(self, source: RolloutSource) -> None:
        changes = await source.changes(self._shown_seq)
        if source is not self.source or changes.seq == self._shown_seq:
            return
        transcript = self.trajectory.transcript
        if changes.touched or changes.steps != transcript.steps:
            await transcript.refresh_steps(changes.touched, changes.steps)
        self._shown_seq = changes.seq
        if not transcript.opening.system:
            transcript.set_opening(await source.opening())
        await self.guidance.refresh_queue()
        await self.files.refresh_content(transcript.cursor)
        await self.terminals.refresh_names()

    def show_link_state(self) -> None:
        """What waited may have been taken."""
        self.selector.show_state(self.state)
        self.run_latest(self._refresh_queue, "queue")

    async def _refresh_queue(self) -> None:
        try:
            await self.guidance.refresh_queue()
        except HoustonError as problem:
            self.show_error(problem)

    def refresh_status(self) -> None:
        """The line at the top, and how the rollout stands."""
        super().refresh_status()
        self._update_titles()
        self.guidance.show_rollout_state(self.state.open_rollout)
        self.selector.sort_when_idle()
        self.files.sort_when_idle()

    def _update_titles(self) -> None:
        self.trajectory.update_titles(self.state.open_rollout, self.state.link == "down")

    def on_transcript_view_moved(self) -> None:
        """The step at the cursor is another: its files too. Nothing else has changed with it."""
        self._update_titles()
        self.files.follow(self.trajectory.transcript.cursor)
        self.terminals.follow(self.trajectory.transcript.cursor)

    # --- areas -------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """Show all five panes, or one at a time."""
        narrow = event.size.width < NARROW_COLUMNS or event.size.height < LOW_LINES
        self.set_class(narrow, "-narrow")
        self.refresh_status()
        self.call_after_refresh(self._keep_focus)

    def _keep_focus(self) -> None:
        """What lost its place with the new size lost the focus too."""
        if self.focused is None:
            self._focus_area(self.area)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line of keys follows the focus; an event that comes after it has gone on is late."""
        if event.widget is not self.focused:
            return
        self.show_undo_offers()
        if isinstance(event.widget, FilterPrompt):
            self.hints.show_area("words")
        elif (area := area_of(event.widget)) is not None:
            self._mark_area(area)
        elif isinstance(event.widget, SinceList):
            self.hints.show_area("since")

    def action_whole(self) -> None:
        """Give the area with the focus the whole screen, or take it back."""
        self.toggle_class("-whole")

    def _mark_area(self, area: Area) -> None:
        if area != self.area:
            self.remove_class("-whole")
        self.area = area
        before = self.classes
        self.update_classes({f"-on-{name}": name == area for name in WATCH_AREAS}, update=False)
        if self.classes != before:
            # They show and hide areas. Textual would style all that is in them, twice.
            areas = self.query("#areas > *, #centre > *, #right > *")
            self.app.stylesheet.update_nodes(areas)
        self.tabs.show_area(area)
        self.hints.show_area(area)

    def _focus_area(self, area: Area) -> None:
        self._mark_area(area)
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
        self.files.list.focus()

    def action_area(self, area: Area) -> None:
        """Go to an area."""
        self._focus_area(area)

    async def action_ask(self, kind: str) -> None:
        """Ask for words to search, or to filter the list with the focus; or for a step."""
        if kind == "/" and isinstance(self.focused, FilteredList):
            await self.focused.action_filter()
            return
        self._mark_area("trajectory")
        self.trajectory.ask(kind)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let letters be typed while somebody types."""
        return not (self.is_typing and action in ("area", "ask"))

    def action_next_area(self, by: int) -> None:
        """The area after this one, or before."""
        self._focus_area(WATCH_AREAS[(WATCH_AREAS.index(self.area) + by) % len(WATCH_AREAS)])

    async def on_rollout_list_chosen(self, message: RolloutList.Chosen) -> None:
        """Open the rollout that was clicked."""
        await self.go_to_rollout(message.rollout)

    async def action_choose_rollout(self) -> None:
        """Open the rollout under the selector's cursor; keys behind this one wait for it."""
        if (under := self.selector.rollouts.under_cursor) is not None and under.need is not None:
            await self.go_to_rollout(under.id)

    async def go_to_rollout(self, rollout: str) -> None:
        """Go to another rollout's steps: first the focus and the composer, then what is read."""
        self._focus_area("trajectory")
        await self._try_open(rollout)

    async def _try_open(self, rollout: str) -> bool:
        try:
            await self.open_rollout(rollout)
        except HoustonError as problem:
            self.show_error(problem)
            return False
        return True

    async def on_go_to_step(self, message: GoToStep) -> None:
        """From a change, a search, a message or a permalink to its step."""
        is_other = message.rollout not in ("", self.state.selected)
        if is_other and not await self._try_open(message.rollout):
            return
        await self.trajectory.transcript.go_to(message.step, open=True)
        self.trajectory.transcript.reveal_match(message.step)
        self._focus_area("trajectory")

    async def on_go_to_terminal_line(self, message: GoToTerminalLine) -> None:
        """From a search to what a terminal printed."""
        if message.rollout != self.state.selected:
            await self.go_to_rollout(message.rollout)
        if message.step:
            await self.trajectory.transcript.go_to(message.step)
        self._focus_area("terminals")
        self.call_after_refresh(
            self.terminals.show_line, message.terminal, message.byte, message.host
        )

    async def action_hit(self, by: int) -> None:
        """The next place that a search has found, or the one before."""
        await self.trajectory.search.action_hit(by)

    async def on_open_prompt_inspector(self, message: OpenPromptInspector) -> None:
        """What the model was given at a step, on a screen of its own."""
        if self.source is not None:
            await self.app.push_screen(
                PromptInspector(self.state, self._home, self.source, message.step, self)
            )

    # --- steering ---------------------------------------------------------------

    def on_composer_leave(self) -> None:
        """Go back to the trajectory."""
        self._focus_area("trajectory")

    def on_guidance_pane_compose(self) -> None:
        """Go to the composer."""
        self._focus_area("composer")

    def action_steer(self, action: SteeringAction) -> None:
        """Pause, resume or cancel the rollout that is open; cancelling asks first."""
        self._steering.steer(self.state.selected, action)
