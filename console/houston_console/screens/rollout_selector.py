"""The rollout selector at the left of the watch screen.

Lists every rollout under its task and shows facts about the one at the cursor. Order and words
come from `screens.rollout_lists`; what happens when one is chosen is decided by the screen.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.message import Message

from houston_console.app.console_state import ConsoleState
from houston_console.app.key_bindings import bindings_for, key_label
from houston_console.screens.base_screen import Pane, post_message_as
from houston_console.screens.rollout_lists import (
    ListOrder,
    ListRow,
    rollout_facts,
    searchable_text,
    selector_line,
)
from houston_console.widgets.line_view import (
    FixedLines,
    set_frame_subtitle,
    set_frame_title,
)
from houston_console.widgets.list_filter import FilteredList
from houston_console.widgets.styled_text import LOADING_LINE, TextLine, line, span
from houston_shared.store.presence_queries import AttentionCost
from houston_shared.store.process_reward_queries import StepReward
from houston_shared.times_and_counts import now_us

MIN_FACT_LINES = 9
"""Lines under the list at least."""


class RolloutList(FilteredList[ListRow]):
    """Tasks and their rollouts; the cursor stands on rollouts only."""

    BINDINGS = bindings_for("rollouts")

    @dataclass
    class Chosen(Message):
        """A rollout was chosen to be opened."""

        rollout: str

    class Moved(Message):
        """The cursor is on another rollout."""

    class Sort(Message):
        """Sort by need now."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__([], **arguments)
        self.chosen = ""
        self.empty = LOADING_LINE
        self.order = ListOrder()

    def line_at(self, number: int) -> TextLine:
        """A task or a rollout."""
        return selector_line(self.items[number], self.line_cells, self.chosen, number == 0)

    def selectable(self, number: int) -> bool:
        """All lines but tasks."""
        return self.items[number].need is not None

    def filter_text(self, item: ListRow) -> str:
        """All that is known of a rollout, as at home."""
        return searchable_text(item.need) if item.need else item.task

    def is_heading(self, item: ListRow) -> bool:
        """The task of those below it."""
        return item.is_task

    def cursor_moved(self) -> None:
        """Tell the selector that the cursor moved."""
        post_message_as(self, self.Moved())

    def show_rows(self, listed: list[ListRow], chosen: str) -> None:
        """Show these lines; the cursor stays on its rollout, or goes to the one that was opened."""
        keep = self.under_cursor.id if self.under_cursor else ""
        wanted_id = chosen if chosen != self.chosen or not keep else keep
        if (listed, chosen) == (self.all_items, self.chosen):
            return
        before = self.visible_lines()
        self.items, self.chosen = listed, chosen
        ids = [row.id for row in self.items]
        self.redraw_changed(before)
        if wanted_id not in ids:
            return
        at = ids.index(wanted_id)
        if wanted_id == keep:
            self.keep_cursor_line(at)
        self.set_cursor(at)

    def set_empty_text(self, words: str) -> None:
        """What stands where no rollout does."""
        empty = line(span(words, "dim"))
        if empty != self.empty:
            self.empty = empty
            self.refresh()

    def action_sort(self) -> None:
        """Sort by need."""
        post_message_as(self, self.Sort())

    def on_focus(self) -> None:
        """Note that somebody uses this list."""
        super().on_focus()
        self.note_activity()

    def on_blur(self) -> None:
        """Somebody has left: the order need not be held."""
        super().on_blur()
        self.order.attention.forget_activity()

    def note_activity(self) -> None:
        """Hold the order for some seconds."""
        self.order.attention.note_activity()

    def on_click(self, event: Any) -> None:
        """Open the rollout that was clicked."""
        super().on_click(event)
        under = self.under_cursor
        if under is not None and under.need is not None:
            post_message_as(self, self.Chosen(under.id))


class RolloutSelector(Pane):
    """The pane on the left."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rollouts, self.facts = (
            RolloutList(id="rollout-list"),
            FixedLines(focusable=False, id="facts"),
        )
        self._is_daemon_down, self._person = False, ""
        self._state: ConsoleState | None = None
        self._costs: dict[str, list[AttentionCost]] = {}
        self._rewards: dict[str, list[StepReward]] = {}

    def compose(self) -> ComposeResult:
        """The list above, facts below."""
        yield self.rollouts
        yield self.facts

    def on_mount(self) -> None:
        """Write the title of the pane."""
        set_frame_title(self, "1 Rollouts")

    def show_state(self, state: ConsoleState, sort: bool = False) -> None:
        """Show the rollouts that there are, as they need somebody. sort: also under the cursor."""
        self._is_daemon_down, self._person, self._state = state.link == "down", state.person, state
        listed = self.rollouts
        listed.set_empty_text(state.empty_list_text(state.was_read))
        under = listed.under_cursor if listed.has_focus and not sort else None
        rows = listed.order.arrange(state.needs(), True, under.id if under else "", not sort)
        listed.show_rows(rows, state.selected)
        set_frame_subtitle(
            self, line(span(listed.order.hold_text(key_label("rollouts", "sort")), "warning"))
        )
        self.on_rollout_list_moved()

    def sort_when_idle(self) -> None:
        """Called once a second: by need again, where nobody moves through the list any more."""
        if self.rollouts.order.is_due and self._state is not None:
            self.show_state(self._state)

    def on_rollout_list_sort(self) -> None:
        """Sort by need now."""
        if self._state is not None:
            self.show_state(self._state, sort=True)

    def show_costs(
        self, by: dict[str, list[AttentionCost]], rewards: dict[str, list[StepReward]]
    ) -> None:
        """What people gave to rollouts, and a model to decisions, as it was read just now."""
        self._costs, self._rewards = by, rewards
        self.on_rollout_list_moved()

    def on_rollout_list_moved(self) -> None:
        """Facts follow the cursor."""
        under = self.rollouts.under_cursor
        if under is None or under.need is None:
            self.facts.show_lines(lambda width: [])
        else:
            self.facts.show_lines(
                partial(
                    rollout_facts,
                    under.need,
                    self._costs.get(under.id, []),
                    self._rewards.get(under.id, []),
                    self._is_daemon_down,
                    self._person,
                    now_us(),
                )
            )
        self.on_resize()

    def on_resize(self) -> None:
        """The facts have the lines they need, up to half of the area."""
        lines = len(self.facts.lines) + 1
        self.facts.styles.height = max(MIN_FACT_LINES, min(lines, self.size.height // 2))
