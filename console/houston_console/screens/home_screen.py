"""The home screen: all rollouts of all tasks, the neediest first, and a preview of one of them.

Lists what the console's state knows, filters and folds it, and lets a person open a rollout, speak
to it, claim it, steer it, or mark two to compare. It reads only what attention a rollout has cost;
lines are made in `screens.home_list`, the preview in `screens.rollout_preview`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, TextArea

from houston_console.app.claim_actions import ClaimActions
from houston_console.app.console_state import EMPTY_BOARD, ConsoleState, NeedsReader
from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import Area, bindings_for, key_label
from houston_console.app.rollout_actions import SteeringActions
from houston_console.app.undo_offers import UndoOffers
from houston_console.screens.base_screen import HoustonScreen
from houston_console.screens.home_columns import HomeEntry, HomeViewContext
from houston_console.screens.home_list import HomeList, column_heads, home_summary
from houston_console.screens.rollout_card import rollout_card
from houston_console.screens.rollout_lists import filter_needs
from houston_console.screens.rollout_preview import RolloutDetails, RolloutPreviewPane
from houston_console.widgets.line_view import FixedLines, set_frame_subtitle, set_frame_title
from houston_console.widgets.list_filter import FilterPrompt
from houston_console.widgets.styled_text import TextLine, line, span
from houston_shared.errors import HoustonError
from houston_shared.store import presence_queries, refinement_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.journal_events import ReadPlan
from houston_shared.times_and_counts import now_us

DIGIT_TIMEOUT_SECONDS = 1.5
"""Digits typed within this time of each other are one number."""
CARD_MIN_LINES = 34
"""Lines of the screen below which the card is not shown."""
PREVIEW_MIN_COLUMNS, PREVIEW_MIN_LINES = 100, 20
"""Size of the screen from which a preview stands beside the list, in the place of the card."""
COMPARED_ROLLOUTS = 2


class HomeScreen(HoustonScreen):
    """All rollouts, those that need somebody first."""

    BINDINGS = bindings_for("home")
    area: Area = "home"

    def __init__(
        self,
        state: ConsoleState,
        reader: AsyncReader,
        needs: NeedsReader,
        link: DaemonLink,
        undo_offers: UndoOffers,
        home: str,
        choose: Callable[[str], Awaitable[None]],
        compare: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """choose: open a rollout. compare: two of them. reader: one that no key waits for."""
        super().__init__(state, home)
        self.list = HomeList(state.person, id="home-list")
        self.heads = FixedLines(focusable=False, id="home-heads")
        self.card = FixedLines(focusable=False, id="home-card")
        self.filter = FilterPrompt(self.list, partial(self.refresh_list, hold=False))
        self.preview = RolloutPreviewPane(link, AsyncReader(link.home), id="home-preview")
        self.by_task = False
        self._unfolded: frozenset[str] = frozenset()
        """Tasks whose ended rollouts are listed one by one."""
        self._reader, self._needs, self._link = reader, needs, link
        self._open_rollout, self._open_comparison = choose, compare
        self._claiming = ClaimActions(link, undo_offers, self)
        self._steering = SteeringActions(link, undo_offers, self)
        self._details: tuple[str, RolloutDetails] = ("", RolloutDetails())
        """Of the rollout at the cursor, once they were read."""
        self._typed_number, self._last_key = ("", 0.0), ""

    def compose_body(self) -> ComposeResult:
        """Heads, the list, a line to filter by, and the card; beside them the preview."""
        with Horizontal(id="home-columns"):
            with Vertical(id="home"):
                yield self.heads
                yield self.list
                yield self.filter
                yield self.card
            yield self.preview

    def on_mount(self) -> None:
        """Begin in the list."""
        set_frame_title(self.query_one("#home"), "Who needs me?")
        self.hints.show_area("home")
        self.set_focus(self.list)
        self._update_heads()

    # --- what changed ------------------------------------------------------------------------

    def show_board(self) -> None:
        """Who needs a person was judged again."""
        if self.is_mounted:  # being opened it has no parts yet; it lists them when it arrives
            self.refresh_list()

    def refresh_list(self, at: str = "", anew: bool = False, hold: bool = True) -> None:
        """List what there is. at: the rollout to stand on. anew: keep no place of before.

        hold: keep the order where somebody moves through the list.
        """
        listed, was_read = self.list, self.state.board is not EMPTY_BOARD
        needs = filter_needs(self.state.board.needs, self.filter.value)
        keep = "" if anew else listed.chosen
        listed.order.arrange(needs, self.by_task, keep, hold and not anew)
        matching_tasks = {need.overview.rollout.task for need in needs} if self.filter.value else ()
        rows = listed.order.fold(matching_tasks or self._unfolded)
        listed.budgets, listed.spending = self._needs.budgets, self._needs.spending
        words = " no rollout holds these words" if self.filter.value and was_read else ""
        listed.empty = line(span(words or self.state.empty_list_text(was_read), "dim"))
        listed.show_rows(rows, now_us(), at)
        self._update_heads()
        self._update_summary()

    def _update_summary(self) -> None:
        box = self.list.parent
        if not isinstance(box, Vertical) or not box.is_attached:
            return  # a worker that ends when home is being closed
        board, me = self.state.board, self.state.person
        parts = home_summary(board.needs, board.at_home, me, not self._link.unseen_reason)
        if board is EMPTY_BOARD:
            parts = ()
        if words := self.list.order.hold_text(key_label("home", "sort")):
            parts = line(span(f"{words}   ", "warning"), *parts)
        if self.filter.value:
            parts = line(span(f"/{self.filter.value}  esc shows all   "), *parts)
        set_frame_subtitle(box, parts)
        if self.has_class("-columns"):
            self._show_preview()
        else:
            self.card.show_lines(partial(self._card_lines, self.list.under_cursor))

    def _show_preview(self) -> None:
        """The column beside the list follows the cursor."""
        selected_entry, fold = self.list.under_cursor, self.list.fold_at_cursor
        if selected_entry is not None:
            view = HomeViewContext(self.state.person, now_us(), 0)
            self.preview.show_entry(selected_entry, self._details_of(selected_entry), view)
        elif fold is not None:
            self.preview.show_fold(fold.task, fold.ended)
        else:
            self.preview.show_nothing()

    def _details_of(self, entry: HomeEntry) -> RolloutDetails:
        rollout, details = self._details
        return details if rollout == entry.need.overview.rollout.id else RolloutDetails()

    def _card_lines(self, selected_entry: HomeEntry | None, width: int) -> list[TextLine]:
        if selected_entry is None:
            return []
        spent, tree = self._details_of(selected_entry)
        return rollout_card(
            selected_entry, spent, HomeViewContext(self.state.person, now_us(), width), tree
        )

    def on_home_list_moved(self) -> None:
        """The card follows the cursor; what attention cost and what refines it are read for it."""
        self._update_summary()
        self.run_latest(self._read_details, "cost")

    async def _read_details(self) -> None:
        rollout = self.list.chosen
        if not rollout:
            return
        try:
            details = await self._reader.run(_read_rollout_details(rollout))
        except HoustonError as problem:
            self.show_error(problem)
        else:
            self._details = (rollout, details)
            if self.children:  # the console may have been left meanwhile
                self._update_summary()

    def on_resize(self, event: events.Resize) -> None:
        """A low screen has no room for the card, a narrow one none for the preview."""
        width, height = event.size
        self.set_class(height < CARD_MIN_LINES, "-low")
        columns = width >= PREVIEW_MIN_COLUMNS and height >= PREVIEW_MIN_LINES
        self.set_class(columns, "-columns")
        if not columns:
            self.preview.stop()
            self._leave_composer()
        self.call_after_refresh(self._update_heads)
        self.call_after_refresh(self._update_summary)

    def on_screen_suspend(self) -> None:
        """Nobody sees the preview."""
        self.preview.stop()

    def on_screen_resume(self) -> None:
        """It is seen again."""
        super().on_screen_resume()
        self._update_summary()

    def _update_heads(self) -> None:
        self.heads.show_lines(lambda width: [column_heads(self.list.view)])

    def show_on_arrival(self) -> None:
        """Somebody comes from a rollout: nobody was reading here, and the cursor goes to it."""
        self.list.order.attention.forget_activity()
        self.refresh_list(self.state.selected)
        self.on_home_list_moved()

    def note_key(self, key: str) -> None:
        """Somebody is at the list."""
        self.list.note_activity()
        self._last_key = key

    def refresh_status(self) -> None:
        """Called once a second: by need again, where nobody moves through the list any more."""
        super().refresh_status()
        if self.list.order.is_due:
            self.refresh_list()

    def action_sort(self) -> None:
        """Sort by need now."""
        self.refresh_list(self.list.chosen, anew=True)

    # --- filter, groups, numbers -------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While somebody types a filter, keys are letters."""
        return not isinstance(self.focused, (Input, TextArea))

    def action_filter(self) -> None:
        """Type words; only rollouts that hold them all stay."""
        self.filter.open("words of a name, a task, a reason, an action, a person")

    def on_descendant_focus(self) -> None:
        """While a filter is written, letters are no keys."""
        self.show_undo_offers()
        composing = self.focused is self.preview.guidance.composer
        area: Area = "words" if self.focused is self.filter else "home"
        self.hints.show_area("composer" if composing else area)

    async def action_back(self) -> None:
        """End the filter; without one, go back to the rollout that is open."""
        if self.filter.value:
            self.filter.action_leave()
        elif self.state.selected:
            await self._open_rollout(self.state.selected)

    def action_group(self) -> None:
        """Switch between one list and a list for each task."""
        self.by_task = not self.by_task
        self.refresh_list(self.list.chosen, anew=True)

    def action_fold_ended(self) -> None:
        """List the ended rollouts of every task, or fold them."""
        tasks = {row.task for row in self.list.rows if row.ended}
        self._unfold(frozenset() if tasks <= self._unfolded else frozenset(tasks))

    def _unfold(self, tasks: frozenset[str]) -> None:
        self._unfolded = tasks
        self.refresh_list()
        self.list.reveal_fold()
        self.on_home_list_moved()

    def action_number(self) -> None:
        """Go to a rollout by its number; digits that follow at once belong to it."""
        digit, (typed, at), now = self._last_key, self._typed_number, time.monotonic()
        if not digit.isdecimal():
            self.show_message("Type the number in front of a rollout.", "warning")
            return
        text = f"{typed}{digit}" if now - at < DIGIT_TIMEOUT_SECONDS else digit
        if int(text) > sum(row.need is not None for row in self.list.rows):
            text = digit
        self._typed_number = (text, now)
        self.list.go_to_number(int(text))

    # --- one rollout, or two -----------------------------------------------------------------

    async def action_open(self) -> None:
        """Open the rollout at the cursor, or a fold; keys behind this one wait for it."""
        await self._wait_for_list()
        if fold := self.list.fold_at_cursor:
            self._unfold(self._unfolded ^ {fold.task})
        elif self.list.chosen:
            await self._open_rollout(self.list.chosen)

    async def action_write(self) -> None:
        """Go to the composer of the rollout at the cursor; without columns, to that of its screen.

        Keys behind this one wait for it.
        """
        await self._wait_for_list()
        if not self.list.chosen:
            self.show_message("No rollout is at the cursor.", "warning")
        elif self.has_class("-columns"):
            self._show_preview()
            self.set_focus(self.preview.turn_composer())
        else:
            await self._open_rollout(self.list.chosen)
            await self.app.screen.run_action("area('composer')")

    def on_composer_leave(self) -> None:
        """Back to the list; the draft stays."""
        self._leave_composer()

    def _leave_composer(self) -> None:
        if self.preview.guidance.composer.has_focus:
            self.set_focus(self.list)

    async def _wait_for_list(self) -> None:
        """Until the list has done what the keys before this one asked of it.

        This key is taken by the app; those wait for their turn in the list.
        """
        event = asyncio.Event()
        if self.list.call_later(event.set):
            await event.wait()

    async def on_home_list_opened(self) -> None:
        """Open the rollout that was clicked."""
        await self.action_open()

    def action_mark(self) -> None:
        """Mark a rollout to compare, or take the mark away: at most two, of one task."""
        selected_entry = self.list.under_cursor
        if selected_entry is None:
            return
        rollout, marks = selected_entry.need.overview.rollout, self.list.marks
        if rollout.id in marks:
            marks = tuple(mark for mark in marks if mark != rollout.id)
        else:
            same = [mark for mark in marks if self._task_of(mark) == rollout.task]
            marks = (*same[-1:], rollout.id)
        self.list.marks = marks
        self.list.redraw_if_changed()
        if len(marks) == COMPARED_ROLLOUTS:
            self.show_message("Two are chosen: | shows them side by side.", "success")

    def _task_of(self, rollout: str) -> str:
        row = self.state.rollouts.get(rollout)
        return row.task if row else ""

    async def action_compare(self) -> None:
        """The two that are marked; with one mark, it and the one at the cursor."""
        marks = self.list.marks
        chosen = self.list.chosen
        pair = marks if len(marks) == COMPARED_ROLLOUTS else (*marks, chosen)
        if len(set(pair)) != COMPARED_ROLLOUTS or len({self._task_of(side) for side in pair}) != 1:
            self.show_message("Choose two rollouts of one task with V.", "warning")
            return
        await self._open_comparison(pair[0], pair[1])

    def action_claim(self, back: bool = False) -> None:
        """Look after the rollout at the cursor, or hand it over; back: no longer, unasked."""
        selected_entry = self.list.under_cursor
        if selected_entry is not None:
            overview = selected_entry.need.overview
            do = self._claiming.take_back if back else self._claiming.toggle
            do(overview.rollout.id, overview.holding, self.state)

    def action_steer(self, action: str) -> None:
        """Pause, resume or cancel the rollout at the cursor; cancelling asks first."""
        self._steering.steer(self.list.chosen, action)


def _read_rollout_details(rollout: str) -> ReadPlan[RolloutDetails]:
    """What attention a rollout has cost and what refines it, in one transaction."""
    costs = yield from presence_queries.read_attention_costs([rollout])
    tree = yield from refinement_queries.read_refinement_tree(rollout)
    return RolloutDetails(costs[rollout], tree)
