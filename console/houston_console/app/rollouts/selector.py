"""The selector: every rollout under its task, and what is known of the one under the cursor."""

from collections.abc import Callable
from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from houston_console.app.drawing.frame import subtitle, title
from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import UNREAD, Line, line, span
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.keys import bindings, shown
from houston_console.app.messages import say
from houston_console.app.rollouts.listing import rollout_facts, rollout_line
from houston_console.app.rollouts.order import Order, Row
from houston_console.app.state import ConsoleState
from houston_shared.clock import now_us
from houston_shared.store.queries.cost import Spent

FACTS = 9
"""Lines under the list at least."""


class RolloutList(LineView):
    """Tasks and their rollouts; the cursor stands on rollouts only."""

    BINDINGS = bindings("rollouts")

    class Chosen(Message):
        """Open a rollout."""

        def __init__(self, rollout: str) -> None:
            super().__init__()
            self.rollout = rollout

    class Moved(Message):
        """The cursor is on another rollout."""

    class Sort(Message):
        """By need, now."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.listed: list[Row] = []
        self.chosen = ""
        self.empty = UNREAD
        self.order = Order()

    def line_count(self) -> int:
        """Tasks and rollouts."""
        return len(self.listed)

    def line_at(self, number: int) -> Line:
        """A task or a rollout."""
        return rollout_line(self.listed[number], self.room, self.chosen, number == 0)

    def selectable(self, number: int) -> bool:
        """Rollouts are, tasks are not."""
        return self.listed[number].need is not None

    def moved(self) -> None:
        """Tell what is under the cursor now."""
        say(self, self.Moved())

    @property
    def under_cursor(self) -> Row | None:
        """The line with the cursor."""
        return self.listed[self.cursor] if self.cursor < len(self.listed) else None

    def take(self, listed: list[Row], chosen: str) -> None:
        """Show these lines; the cursor stays on its rollout, or goes to the one that was opened."""
        keep = self.under_cursor.id if self.under_cursor else ""
        wanted = chosen if chosen != self.chosen or not keep else keep
        if (listed, chosen) == (self.listed, self.chosen):
            return
        before = self._looks()
        self.listed, self.chosen = listed, chosen
        ids = [one.id for one in listed]
        if self._looks() != before:
            self.show()
        if wanted not in ids:
            return
        at = ids.index(wanted)
        if wanted == keep:
            self.keep_line(at)
        self.put_cursor(at)

    def _looks(self) -> list[Line]:
        """The lines on the screen, to draw them again only when they are others."""
        first = round(self.scroll_y)
        shown = range(first, min(self.line_count(), first + self.size.height))
        return [self.line_at(number) for number in shown]

    def say_when_empty(self, words: str) -> None:
        """What stands where no rollout does."""
        empty = line(span(words, "dim"))
        if empty != self.empty:
            self.empty = empty
            self.refresh()

    def action_sort(self) -> None:
        """By need again."""
        say(self, self.Sort())

    def on_focus(self) -> None:
        """Somebody is here."""
        super().on_focus()
        self.touched()

    def on_blur(self) -> None:
        """Somebody has left: the order need not be held."""
        super().on_blur()
        self.order.reading.left()

    def touched(self) -> None:
        """Nothing changes the order for some seconds."""
        self.order.reading.touched()

    def on_click(self, event: Any) -> None:
        """A click opens."""
        super().on_click(event)
        under = self.under_cursor
        if under is not None and under.need is not None:
            say(self, self.Chosen(under.id))


class Facts(LineView, can_focus=False):
    """A few lines, made for the width there is whenever that is known or changes."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.lines: list[Line] = []
        self._make: Callable[[int], list[Line]] = _nothing

    def line_count(self) -> int:
        """As many as there are."""
        return len(self.lines)

    def line_at(self, number: int) -> Line:
        """One of them."""
        return self.lines[number]

    def put(self, make: Callable[[int], list[Line]]) -> None:
        """Show what `make` gives for a width."""
        self._make = make
        if self._make(self.room) != self.lines:
            self.show()

    def show(self) -> None:
        """Made again: a hidden one has no width yet."""
        self.lines = self._make(self.room)
        super().show()


def _nothing(width: int) -> list[Line]:
    """What is said before there is anything to say."""
    return []


class Selector(ErrorBoundary, Vertical):
    """The area on the left."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rollouts, self.facts = RolloutList(id="rollout-list"), Facts(id="facts")
        self._down, self._me = False, ""
        self._state: ConsoleState | None = None
        self._spent: dict[str, list[Spent]] = {}

    def compose(self) -> ComposeResult:
        """The list above, facts below."""
        yield self.rollouts
        yield self.facts

    def on_mount(self) -> None:
        """Name the area."""
        title(self, "1 Rollouts")

    def take(self, state: ConsoleState, sort: bool = False) -> None:
        """Show the rollouts that there are, as they need somebody. sort: also under the cursor."""
        self._down, self._me, self._state = state.link == "down", state.me, state
        listed = self.rollouts
        listed.say_when_empty(state.nothing(state.read))
        under = listed.under_cursor if listed.has_focus and not sort else None
        rows = listed.order.take(state.needs(), True, under.id if under else "", not sort)
        listed.take(rows, state.selected)
        subtitle(
            self,
            line(span(listed.order.words(shown("rollouts", "sort")), "warning")),
        )
        self.on_rollout_list_moved()

    def rest(self) -> None:
        """Called once a second: by need again, where nobody moves through the list any more."""
        if self.rollouts.order.due and self._state is not None:
            self.take(self._state)

    def on_rollout_list_sort(self) -> None:
        """By need again, now."""
        if self._state is not None:
            self.take(self._state, sort=True)

    def spent(self, by: dict[str, list[Spent]]) -> None:
        """What people gave to rollouts, as it was read just now."""
        self._spent = by
        self.on_rollout_list_moved()

    def on_rollout_list_moved(self) -> None:
        """Facts follow the cursor."""
        under = self.rollouts.under_cursor
        if under is None or under.need is None:
            self.facts.put(_nothing)
        else:
            spent = self._spent.get(under.id, [])
            self.facts.put(
                partial(rollout_facts, under.need, spent, self._down, self._me, now_us())
            )
        self.on_resize()

    def on_resize(self) -> None:
        """The facts have the lines they need, up to half of the area."""
        lines = len(self.facts.lines) + 1
        self.facts.styles.height = max(FACTS, min(lines, self.size.height // 2))
