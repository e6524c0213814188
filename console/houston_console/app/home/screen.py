"""The home screen: who needs me? All rollouts of all tasks, the neediest first.

What is known of them is in the console's state; this screen lists it, filters it and lets a person
go to one, look after it, mark two to compare. It reads only what attention a rollout has cost.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from houston_console.app.dialogs import Prompt
from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.lines import Line, line, span
from houston_console.app.home.lines import Shown, View, card, heads, summary
from houston_console.app.home.listing import HomeList
from houston_console.app.keys import Area, bindings, shown
from houston_console.app.link import Link
from houston_console.app.people.claiming import Claiming
from houston_console.app.rollouts.needs import Needs
from houston_console.app.rollouts.order import matching
from houston_console.app.rollouts.selector import Facts
from houston_console.app.screen import HoustonScreen
from houston_console.app.state import NOBODY, ConsoleState
from houston_console.app.steering.steering import Steering
from houston_console.app.undoing import Undoing
from houston_shared.clock import now_us
from houston_shared.errors import HoustonError
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.queries import cost
from houston_shared.store.queries.cost import Spent

NUMBER_SECONDS = 1.5
"""Digits typed within this time of each other are one number."""
LOW = 34
"""Lines of the screen below which the card is not shown."""
PAIR = 2


class Filter(Prompt):
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

    BINDINGS = bindings("home")

    def __init__(
        self,
        state: ConsoleState,
        reader: AsyncReader,
        needs: Needs,
        link: Link,
        undoing: Undoing,
        home: str,
        choose: Callable[[str], Awaitable[None]],
        compare: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """choose: open a rollout. compare: two of them. reader: one that no key waits for."""
        super().__init__(state, home)
        self.listed = HomeList(state.me, id="home-list")
        self.heads, self.card = Facts(id="home-heads"), Facts(id="home-card")
        self.filter = Filter(id="home-filter")
        self.by_task = False
        self._reader, self._needs, self._link = reader, needs, link
        self._choose, self._compare = choose, compare
        self._claiming = Claiming(link, undoing, self)
        self._steering = Steering(link, undoing, self)
        self._spent: tuple[str, list[Spent]] = ("", [])
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
        title(self.query_one("#home"), "Who needs me?")
        self.hints.area("home")
        self.set_focus(self.listed)
        self._head()

    @property
    def area(self) -> Area:
        """One place."""
        return "home"

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
        listed, read = self.listed, self.state.board is not NOBODY
        found = matching(self.state.board.needs, self.filter.value)
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
        parts = summary(board.needs, board.at_home, me, not self._link.unseen)
        if board is NOBODY:
            parts = ()
        if words := self.listed.order.words(shown("home", "sort")):
            parts = line(span(f"{words}   ", "warning"), *parts)
        if self.filter.value:
            parts = line(span(f"/{self.filter.value}  esc shows all   "), *parts)
        subtitle(box, parts)
        under = self.listed.under_cursor
        self.card.put(partial(self._card_lines, under))

    def _card_lines(self, under: Shown | None, width: int) -> list[Line]:
        if under is None:
            return []
        of, spent = self._spent
        mine = spent if of == under.need.standing.rollout.id else []
        return card(under, mine, self._view(width))

    def _view(self, width: int) -> View:
        return View(self.state.me, now_us(), width)

    def on_home_list_moved(self) -> None:
        """The card follows the cursor; what attention cost is read for it."""
        self._say_around()
        self.later(self._read_cost, "cost")

    async def _read_cost(self) -> None:
        rollout = self.listed.chosen
        try:
            by = await self._reader.run(cost.of([rollout]))
        except HoustonError as problem:
            self.told(problem)
        else:
            self._spent = (rollout, by[rollout])
            if self.children:  # the console may have been left meanwhile
                self._say_around()

    def on_resize(self, event: events.Resize) -> None:
        """A low screen has no room for the card."""
        self.set_class(event.size.height < LOW, "-low")
        self.call_after_refresh(self._head)

    def _head(self) -> None:
        self.heads.put(lambda width: [heads(self.listed.view)])

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
        text = f"{typed}{digit}" if now - at < NUMBER_SECONDS else digit
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
        if len(marks) == PAIR:
            self.tell("Two are marked: v shows them side by side.", "success")

    def _task_of(self, rollout: str) -> str:
        found = self.state.rollouts.get(rollout)
        return found.task if found else ""

    async def action_compare(self) -> None:
        """The two that are marked; with one mark, it and the one at the cursor."""
        marks = self.listed.marks
        chosen = self.listed.chosen
        pair = marks if len(marks) == PAIR else (*marks, chosen)
        if len(set(pair)) != PAIR or len({self._task_of(one) for one in pair}) != 1:
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
