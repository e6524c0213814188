"""The home screen: all rollouts of all tasks, the neediest first.

Lists what the console's state knows, filters it, and lets a person open a rollout, claim it,
steer it, or mark two to compare. It reads only what attention a rollout has cost. Lines are made
in `screens.home_list`.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from houston_console.app.console_state import EMPTY_BOARD, ConsoleState, NeedsReader
from houston_console.app.daemon_link import DaemonLink
from houston_console.app.key_bindings import Area, bindings_for, key_label
from houston_console.app.rollout_actions import ClaimActions, SteeringActions
from houston_console.app.undo_offers import UndoOffers
from houston_console.screens.base_screen import HoustonScreen
from houston_console.screens.home_list import (
    HomeEntry,
    HomeList,
    HomeViewContext,
    column_heads,
    home_summary,
    rollout_card,
)
from houston_console.screens.rollout_lists import filter_needs
from houston_console.widgets.dialogs import BottomPrompt
from houston_console.widgets.line_view import FixedLines, set_frame_subtitle, set_frame_title
from houston_console.widgets.styled_text import TextLine, line, span
from houston_shared.errors import HoustonError
from houston_shared.store import presence_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.presence_queries import AttentionCost
from houston_shared.times_and_counts import now_us

DIGIT_TIMEOUT_SECONDS = 1.5
"""Digits typed within this time of each other are one number."""
CARD_MIN_LINES = 34
"""Lines of the screen below which the card is not shown."""
COMPARED_ROLLOUTS = 2


class FilterPrompt(BottomPrompt):
    """What is typed narrows the list at once."""

    def action_leave(self) -> None:
        """Back to the list, which shows all again."""
        self.value = ""
        self.keep()

    def keep(self) -> None:
        """Back to the list as it is filtered."""
        self.display = bool(self.value)
        self.screen.set_focus(self.screen.query_one(HomeList))


class HomeScreen(HoustonScreen):
    """Who needs me?"""

    BINDINGS = bindings_for("home")
    area: Area = "home"

    def __init__(
        self,
        state: ConsoleState,
        reader: AsyncReader,
        needs: NeedsReader,
        link: DaemonLink,
        undoing: UndoOffers,
        home: str,
        choose: Callable[[str], Awaitable[None]],
        compare: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """choose: open a rollout. compare: two of them. reader: one that no key waits for."""
        super().__init__(state, home)
        self.listed = HomeList(state.me, id="home-list")
        self.heads = FixedLines(focusable=False, id="home-heads")
        self.card = FixedLines(focusable=False, id="home-card")
        self.filter = FilterPrompt(id="home-filter")
        self.by_task = False
        self._reader, self._needs, self._link = reader, needs, link
        self._choose, self._compare = choose, compare
        self._claiming = ClaimActions(link, undoing, self)
        self._steering = SteeringActions(link, undoing, self)
        self._spent: tuple[str, list[AttentionCost]] = ("", [])
        self._typed, self._key = ("", 0.0), ""

    def body(self) -> ComposeResult:
        """Heads, the list, a line to filter by, and the card."""
        with Vertical(id="home"):
            yield self.heads
            yield self.listed
            yield self.filter
            yield self.card

    def on_mount(self) -> None:
        """Begin in the list."""
        set_frame_title(self.query_one("#home"), "Who needs me?")
        self.hints.area("home")
        self.set_focus(self.listed)
        self._head()

    # --- what changed ------------------------------------------------------------------------

    async def caught_up(self, changed: bool) -> None:
        """The board comes a moment later, by `judged`."""

    def judged(self) -> None:
        """Who needs a person was judged again."""
        if self.is_mounted:  # being opened it has no parts yet; it lists them when it arrives
            self.list_again()

    def list_again(self, at: str = "", anew: bool = False, hold: bool = True) -> None:
        """List what there is. at: the rollout to stand on. anew: keep no place of before.

        hold: keep the order where somebody moves through the list.
        """
        listed, read = self.listed, self.state.board is not EMPTY_BOARD
        found = filter_needs(self.state.board.needs, self.filter.value)
        keep = "" if anew else listed.chosen
        rows = listed.order.take(found, self.by_task, keep, hold and not anew)
        listed.budgets = self._needs.budgets
        words = " no rollout holds these words" if self.filter.value and read else ""
        listed.empty = line(span(words or self.state.nothing(read), "dim"))
        listed.take(rows, now_us(), at)
        self._head()
        self._say_around()

    def _say_around(self) -> None:
        box = next(iter(self.query("#home")), None)
        if box is None:
            return  # a worker that ends when home is being closed
        board, me = self.state.board, self.state.me
        parts = home_summary(board.needs, board.at_home, me, not self._link.unseen)
        if board is EMPTY_BOARD:
            parts = ()
        if words := self.listed.order.words(key_label("home", "sort")):
            parts = line(span(f"{words}   ", "warning"), *parts)
        if self.filter.value:
            parts = line(span(f"/{self.filter.value}  esc shows all   "), *parts)
        set_frame_subtitle(box, parts)
        under = self.listed.under_cursor
        self.card.put(partial(self._card_lines, under))

    def _card_lines(self, under: HomeEntry | None, width: int) -> list[TextLine]:
        if under is None:
            return []
        of, spent = self._spent
        mine = spent if of == under.need.standing.rollout.id else []
        return rollout_card(under, mine, HomeViewContext(self.state.me, now_us(), width))

    def on_home_list_moved(self) -> None:
        """The card follows the cursor; what attention cost is read for it."""
        self._say_around()
        self.later(self._read_cost, "cost")

    async def _read_cost(self) -> None:
        rollout = self.listed.chosen
        try:
            by = await self._reader.run(presence_queries.read_attention_costs([rollout]))
        except HoustonError as problem:
            self.told(problem)
        else:
            self._spent = (rollout, by[rollout])
            if self.children:  # the console may have been left meanwhile
                self._say_around()

    def on_resize(self, event: events.Resize) -> None:
        """A low screen has no room for the card."""
        self.set_class(event.size.height < CARD_MIN_LINES, "-low")
        self.call_after_refresh(self._head)

    def _head(self) -> None:
        self.heads.put(lambda width: [column_heads(self.listed.view)])

    def arrive(self) -> None:
        """Somebody comes from a rollout: nobody was reading here, and the cursor goes to it."""
        self.listed.order.reading.left()
        self.list_again(self.state.selected)
        self.on_home_list_moved()

    def pressed(self, key: str) -> None:
        """Somebody is at the list."""
        self.listed.touched()
        self._key = key

    def say(self) -> None:
        """Called once a second: by need again, where nobody moves through the list any more."""
        super().say()
        if self.listed.order.due:
            self.list_again()

    def action_sort(self) -> None:
        """By need again, now."""
        self.list_again(self.listed.chosen, anew=True)

    # --- filter, groups, numbers -------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While somebody types a filter, keys are letters."""
        return not isinstance(self.focused, Input)

    def action_filter(self) -> None:
        """Type words; only rollouts that hold them all stay."""
        value = self.filter.value
        self.filter.ask("/", "words of a name, a task, a reason, an action, a person")
        self.filter.value = value
        self.filter.cursor_position = len(value)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """While a filter is written, letters are no keys."""
        self.offer()
        self.hints.area("words" if event.widget is self.filter else "home")

    def on_input_changed(self) -> None:
        """At once, with every letter."""
        self.list_again(hold=False)

    async def action_back(self) -> None:
        """End the filter; without one, go back to the rollout that is open."""
        if self.filter.value:
            self.filter.action_leave()
        elif self.state.selected:
            await self._choose(self.state.selected)

    def action_group(self) -> None:
        """Under their tasks, or all in one list."""
        self.by_task = not self.by_task
        self.list_again(self.listed.chosen, anew=True)

    def action_number(self) -> None:
        """Go to a rollout by its number; digits that follow at once belong to it."""
        digit, (typed, at), now = self._key, self._typed, time.monotonic()
        if not digit.isdecimal():
            self.tell("Type the number in front of a rollout.", "warning")
            return
        text = f"{typed}{digit}" if now - at < DIGIT_TIMEOUT_SECONDS else digit
        if int(text) > sum(row.need is not None for row in self.listed.rows):
            text = digit
        self._typed = (text, now)
        self.listed.go_to_number(int(text))

    # --- one rollout, or two -----------------------------------------------------------------

    async def action_open(self) -> None:
        """Open the rollout at the cursor; keys behind this one wait for it."""
        if self.listed.chosen:
            await self._choose(self.listed.chosen)

    async def on_home_list_opened(self) -> None:
        """A click on it."""
        await self.action_open()

    def action_mark(self) -> None:
        """Mark a rollout to compare, or take the mark away: at most two, of one task."""
        under = self.listed.under_cursor
        if under is None:
            return
        rollout, marks = under.need.standing.rollout, self.listed.marks
        if rollout.id in marks:
            marks = tuple(one for one in marks if one != rollout.id)
        else:
            same = [one for one in marks if self._task_of(one) == rollout.task]
            marks = (*same[-1:], rollout.id)
        self.listed.marks = marks
        self.listed.draw_changed()
        if len(marks) == COMPARED_ROLLOUTS:
            self.tell("Two are marked: v shows them side by side.", "success")

    def _task_of(self, rollout: str) -> str:
        found = self.state.rollouts.get(rollout)
        return found.task if found else ""

    async def action_compare(self) -> None:
        """The two that are marked; with one mark, it and the one at the cursor."""
        marks = self.listed.marks
        chosen = self.listed.chosen
        pair = marks if len(marks) == COMPARED_ROLLOUTS else (*marks, chosen)
        if len(set(pair)) != COMPARED_ROLLOUTS or len({self._task_of(one) for one in pair}) != 1:
            self.tell("Mark two rollouts of one task with x.", "warning")
            return
        await self._compare(pair[0], pair[1])

    def action_claim(self, back: bool = False) -> None:
        """Look after the rollout at the cursor, or hand it over; back: no longer, unasked."""
        under = self.listed.under_cursor
        if under is not None:
            stands = under.need.standing
            do = self._claiming.take_back if back else self._claiming.toggle
            do(stands.rollout.id, stands.holding, self.state)

    def action_steer(self, action: str) -> None:
        """Pause, resume or cancel the rollout at the cursor; cancelling asks first."""
        self._steering.ask(self.listed.chosen, action)
