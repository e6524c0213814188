"""The rollout selector at the left of the watch screen.

Lists every rollout under its task and shows facts about the one at the cursor. Order and words
come from `screens.rollout_lists`; what happens when one is chosen is decided by the screen.
"""

from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.message import Message

from houston_console.app.console_state import ConsoleState
from houston_console.app.key_bindings import bindings_for, key_label
from houston_console.screens.base_screen import Pane, post_from
from houston_console.screens.rollout_lists import ListOrder, ListRow, rollout_facts, selector_line
from houston_console.widgets.line_view import (
    FixedLines,
    ItemList,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.styled_text import LOADING_LINE, TextLine, line, span
from houston_shared.store.presence_queries import AttentionCost
from houston_shared.times_and_counts import now_us

MIN_FACT_LINES = 9
"""Lines under the list at least."""


class RolloutList(ItemList[ListRow]):
    """Tasks and their rollouts; the cursor stands on rollouts only."""

    BINDINGS = bindings_for("rollouts")

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
        super().__init__([], **arguments)
        self.chosen = ""
        self.empty = LOADING_LINE
        self.order = ListOrder()

    def line_at(self, number: int) -> TextLine:
        """A task or a rollout."""
        return selector_line(self.items[number], self.room, self.chosen, number == 0)

    def selectable(self, number: int) -> bool:
        """Rollouts are, tasks are not."""
        return self.items[number].need is not None

    def moved(self) -> None:
        """Tell what is under the cursor now."""
        post_from(self, self.Moved())

    def take(self, listed: list[ListRow], chosen: str) -> None:
        """Show these lines; the cursor stays on its rollout, or goes to the one that was opened."""
        keep = self.under_cursor.id if self.under_cursor else ""
        wanted = chosen if chosen != self.chosen or not keep else keep
        if (listed, chosen) == (self.items, self.chosen):
            return
        before = self._looks()
        self.items, self.chosen = listed, chosen
        ids = [one.id for one in listed]
        if self._looks() != before:
            self.show()
        if wanted not in ids:
            return
        at = ids.index(wanted)
        if wanted == keep:
            self.keep_line(at)
        self.put_cursor(at)

    def _looks(self) -> list[TextLine]:
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
        post_from(self, self.Sort())

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
            post_from(self, self.Chosen(under.id))


class RolloutSelector(Pane):
    """The area on the left."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rollouts, self.facts = (
            RolloutList(id="rollout-list"),
            FixedLines(focusable=False, id="facts"),
        )
        self._down, self._me = False, ""
        self._state: ConsoleState | None = None
        self._spent: dict[str, list[AttentionCost]] = {}

    def compose(self) -> ComposeResult:
        """The list above, facts below."""
        yield self.rollouts
        yield self.facts

    def on_mount(self) -> None:
        """Name the area."""
        set_frame_title(self, "1 Rollouts")

    def take(self, state: ConsoleState, sort: bool = False) -> None:
        """Show the rollouts that there are, as they need somebody. sort: also under the cursor."""
        self._down, self._me, self._state = state.link == "down", state.me, state
        listed = self.rollouts
        listed.say_when_empty(state.nothing(state.read))
        under = listed.under_cursor if listed.has_focus and not sort else None
        rows = listed.order.take(state.needs(), True, under.id if under else "", not sort)
        listed.take(rows, state.selected)
        set_frame_subtitle(
            self,
            line(span(listed.order.words(key_label("rollouts", "sort")), "warning")),
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

    def spent(self, by: dict[str, list[AttentionCost]]) -> None:
        """What people gave to rollouts, as it was read just now."""
        self._spent = by
        self.on_rollout_list_moved()

    def on_rollout_list_moved(self) -> None:
        """Facts follow the cursor."""
        under = self.rollouts.under_cursor
        if under is None or under.need is None:
            self.facts.put(lambda width: [])
        else:
            spent = self._spent.get(under.id, [])
            self.facts.put(
                partial(rollout_facts, under.need, spent, self._down, self._me, now_us())
            )
        self.on_resize()

    def on_resize(self) -> None:
        """The facts have the lines they need, up to half of the area."""
        lines = len(self.facts.lines) + 1
        self.facts.styles.height = max(MIN_FACT_LINES, min(lines, self.size.height // 2))
