"""What every full screen has: the status bar, tabs, hints and undo rows, and its messages.

`HoustonScreen` is the base class of all screens; the app brings it up to date. The messages that
any pane may post to the app (a notice, a failure, go to a step, open the prompt inspector) are
defined here too. What a screen shows is its own.
"""

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, TextArea

from houston_console.app.console_state import ConsoleState
from houston_console.app.error_boundary import ErrorBoundary, PaneBoundary
from houston_console.app.frame_compositor import FrameCompositor
from houston_console.app.key_bindings import Area, focus_chain, hints_for, key_label
from houston_console.app.key_order import FrameAfterKey
from houston_console.screens.rollout_lists import STATE_GLYPHS
from houston_console.widgets.styled_text import (
    TextLine,
    TextSpan,
    Tone,
    blank_strip,
    fit_text,
    flow_groups,
    justify_line,
    line,
    line_width,
    palette_for_theme,
    span,
    text_block,
)
from houston_shared.errors import HoustonError


def post_message_as(widget: Widget, message: Message) -> None:
    """Post a message as the widget's own, whoever called it.

    Textual takes the pump that runs now for the sender, and does not let a message rise to its
    sender: what an area says while the app calls it would never reach the app.
    """
    widget.post_message(message.set_sender(widget))


@dataclass
class ActionFailed(Message):
    """Something could not be read or done."""

    problem: HoustonError


@dataclass
class UserNotice(Message):
    """Something to say to the person at the screen."""

    text: str
    good: bool = False


class Pane(ErrorBoundary, Vertical):
    """A part of a screen: its notices and failures rise to the app, which shows them."""

    def show_notice(self, text: str, good: bool = False) -> None:
        """Say something to the person at the screen."""
        post_message_as(self, UserNotice(text, good))

    def report_problem(self, problem: HoustonError) -> None:
        """Say what could not be read or done."""
        post_message_as(self, ActionFailed(problem))

    async def reporting_errors(self, work: Awaitable[None]) -> None:
        """Do what waits for the daemon or the database, and report what goes wrong."""
        try:
            await work
        except HoustonError as problem:
            self.report_problem(problem)

    def run_reporting(self, work: Awaitable[None], group: str) -> None:
        """The same in the background: no key waits for it."""
        self.run_worker(self.reporting_errors(work), group=group)

    def run_before_keys(
        self, work: Awaitable[bool | None], group: str, asks_for_text: bool = False
    ) -> None:
        """As `run_reporting`, but the next keys wait: for a dialog, or for a step that is looked
        for.

        work: False where it leads to neither; it then says why, and the keys are dropped.
        asks_for_text: it opens a line of text, and keys typed for it are no commands either.
        """
        hold = cast(Any, self.app).keys.hold_keys(asks_for_text)

        async def do() -> None:
            is_reached = False
            try:
                is_reached = await work is not False
            finally:
                hold.set_result(is_reached)

        self.run_reporting(do(), group)


@dataclass
class GoToStep(Message):
    """Show a step of the trajectory, unfolded; of another rollout where one is named."""

    step: int
    rollout: str = ""


@dataclass
class GoToTerminalLine(Message):
    """Show a line of what a terminal printed, and the step that did."""

    rollout: str
    step: int
    terminal: str
    byte: int
    host: str = "local"
    """step: 0 for none. byte: where in the terminal's log the line begins; −1 for its end."""


@dataclass
class OpenPromptInspector(Message):
    """Show exactly what the model was given at a step."""

    step: int


@dataclass
class AskForLine(Message):
    """Have the person type one line, at the lower edge of the trajectory."""

    what: str
    answer: Callable[[str], Awaitable[None]]
    value: str = ""
    """answer: given what was typed, without spaces around it; may raise HoustonError."""


ALWAYS_SHOWN_HINTS = 3
"""Hints that are there at any width."""
MAX_HINT_ROWS = 2
TWO_HINT_ROWS_LINES = 30
"""Height of the terminal from which hints take two rows."""
MAX_KEPT_HINTS = 64
"""Places and widths whose hints are kept: the focus comes back to them."""
MAX_NOTICE_LINES = 4
"""Lines that something to be told may take."""
MAX_UNDO_OFFERS = 3
"""Acts that are shown to be taken back."""
MAX_GREETING_LINES = 3
GREETING_MIN_LINES = 20
"""Lines of the terminal from which there is room for a greeting."""
HOME_NAME_MIN_COLUMNS = 120
"""Columns from which the home is named."""
LINK_LABELS: dict[str, tuple[str, str, Tone]] = {
    "live": ("●", "live", "success"),
    "reconnecting": ("◌", "reconnecting", "warning"),
    "foreign": ("◌", "daemon of another version: reading only", "error"),
    "down": ("○", "daemon down: reading only", "error"),
}


class BarWidget(PaneBoundary, Widget):
    """One line; drawn again only when it says something else."""

    DEFAULT_CSS = "BarWidget { height: 1; }"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._lines: tuple[TextLine, ...] = ()

    def show_lines(self, *lines: TextLine) -> None:
        """Say something; the bar becomes as high as that needs."""
        height = self.styles.height
        if lines and (height is None or height.value != len(lines)):
            self.styles.height = len(lines)
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        if y >= len(self._lines) or not self._lines[y]:
            return blank_strip(self.size.width, self.rich_style)
        colours = palette_for_theme(self.app.current_theme, self.app.theme_variables)
        return colours.strip(self._lines[y], self.size.width, self.rich_style)


class StatusBar(BarWidget):
    """Daemon, rollouts by state, sequence, clock."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._shown_state: tuple[ConsoleState, str] | None = None

    def on_resize(self) -> None:
        """More or less of it fits."""
        if self._shown_state is not None:
            self.show_state(*self._shown_state)

    def show_state(self, state: ConsoleState, home: str) -> None:
        """Show how things stand now."""
        self._shown_state = (state, home)
        glyph, words, tone = LINK_LABELS[state.link]
        left = [span(" houston ", "title"), span(f" {glyph} {words} ", tone)]
        for kind, count in state.counts():
            mark, colour = STATE_GLYPHS[kind]
            left += [span(f"  {mark} ", colour), span(f"{count} {kind}", "dim")]
        lag = f"  {state.lag} behind" if state.lag else ""
        clock = time.strftime("%H:%M %z")
        place = span(f"  {home}", "faint") if self.size.width >= HOME_NAME_MIN_COLUMNS else span("")
        right = line(place, span(f"  event {state.seq}{lag}", "dim"), span(f"  {clock} "))
        room = max(20, self.size.width)
        if line_width(left) + line_width(right) > room:
            right = line(span(f"{lag}  {clock} ", "dim"))
            left = _short_status(state, room - line_width(right))
        self.show_lines(justify_line(tuple(left), right, room))


def _short_status(state: ConsoleState, room: int) -> list[TextSpan]:
    """Daemon and rollouts by state, without words for what has a mark; a count stands whole or not
    at all, since a part of one would be another number."""
    glyph, words, tone = LINK_LABELS[state.link]
    counts = [
        (span(f" {mark}", colour), span(f"{count}", "dim"))
        for (mark, colour), count in ((STATE_GLYPHS[kind], n) for kind, n in state.counts())
    ]
    for label in (words, words.partition(":")[0]):
        spans = [span(" houston ", "title"), span(f" {glyph} {label} ", tone)]
        if line_width(spans) + sum(map(line_width, counts)) <= room:
            break
    for count in counts:
        if line_width(spans) + line_width(count) > room:
            break
        spans += count
    return spans


class GreetingBar(BarWidget):
    """What the configuration says to who is new here; not there where nothing is said."""

    DEFAULT_CSS = "GreetingBar { display: none; }"

    def __init__(self, greeting: Sequence[str]) -> None:
        super().__init__(id="greeting")
        self._greeting = tuple(greeting[:MAX_GREETING_LINES])

    def on_resize(self) -> None:
        """Show it where there is height for it."""
        self.show()

    def show(self) -> None:
        """Show it, unless there is nothing to say or no room."""
        width, height = self.app.size
        self.display = bool(self._greeting) and height >= GREETING_MIN_LINES
        indent = span(" ", "guidance")
        if height >= TWO_HINT_ROWS_LINES:  # what is too long goes on below itself
            blocks = [text_block(text, width, "guidance", indent) for text in self._greeting]
            rows = [row for block in blocks for row in block][: 2 * MAX_GREETING_LINES]
        else:
            rows = [
                line(indent, span(fit_text(text, width - 1), "guidance")) for text in self._greeting
            ]
        self.show_lines(*rows)


class TabBar(BarWidget):
    """Areas by number, for a screen that shows one at a time."""

    TABS: tuple[tuple[Area, str], ...] = (
        ("home", "0 Home"),
        ("rollouts", "1 Rollouts"),
        ("trajectory", "2 Trajectory"),
        ("terminals", "3 Terminals"),
        ("files", "4 Files"),
        ("composer", "5 Guide"),
    )

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._area: Area = "trajectory"

    def on_resize(self) -> None:
        """More or less of it fits."""
        self.show_area(self._area)

    def show_area(self, area: Area) -> None:
        """Mark the area that is shown; where there is no room for all names, it alone is named."""
        self._area = area
        on = "composer" if area == "queue" else area
        numbers = tuple((key, name if key == on else name[:1]) for key, name in self.TABS)
        for tabs, gap in ((self.TABS, "  "), (self.TABS, " "), (numbers, "  ")):
            parts = [span(" ")]
            for key, name in tabs:
                parts += [span(name, "title" if key == on else "faint"), span(gap)]
            if line_width(parts) <= self.size.width:
                break
        self.show_lines(tuple(parts))


class UndoBar(BarWidget):
    """What can be taken back, the newest in front; not there while nothing can."""

    DEFAULT_CSS = "UndoBar { display: none; height: 1; }"

    def show_offers(self, offered: Sequence[tuple[str, str]], key: str) -> None:
        """offered: acts and how long still, the newest first. key: what takes the newest back."""
        self.display = bool(offered)
        lines = []
        for at, (words, remaining) in enumerate(offered[:MAX_UNDO_OFFERS]):
            named = span("" if at else f" {key} ", "tool")
            right = line(
                named, span("" if at else "takes it back", "dim"), span(f" {remaining:>5} ", "dim")
            )
            tone: Tone = "dim" if at else "warning"
            lead = line(span("   then " if at else " ↶ ", tone), span(words, tone))
            lines.append(justify_line(lead, right, max(20, self.size.width)))
        self.show_lines(*lines)


class HintBar(BarWidget):
    """Keys of the area with the focus, or the last thing to be told."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._area: Area = "trajectory"
        self._message: TextLine = ()
        """What to tell, in one piece; wrapped for the width there is."""
        self._added = ""
        """What is told behind it."""
        self._rows = 1
        """Rows that hints have needed at this size. It gives none back: areas above would be laid
        out and drawn again whenever the focus goes to one with fewer keys."""
        self._rows_at: tuple[int, Size] | None = None
        """The width of the bar and the size of the terminal then."""

    def show_area(self, area: Area) -> None:
        """The focus is there now."""
        self._area = area
        self._redraw_hints()

    def show_message(self, text: str, tone: Tone) -> None:
        """Say something until `clear_message`."""
        self._message, self._added = line(span(text, tone)), ""
        self._redraw_hints()

    def add_to_message(self, text: str) -> None:
        """Say this behind what is said, in place of what was added before."""
        self._message, self._added = self._message or line(span("", "warning")), text
        self._redraw_hints()

    def clear_message(self) -> None:
        """It was read."""
        if self._message:
            self._message = ()
            self._redraw_hints()

    def _redraw_hints(self) -> None:
        if (sizes := (self.size.width, self.app.size)) != self._rows_at:
            self._rows, self._rows_at = 1, sizes
        if self._message:
            words = self._message[0]
            text = f"{words.text} {self._added}".strip()
            notice = text_block(text, max(20, self.size.width - 1), words.tone, span(" "))
            self._show_rows(notice[:MAX_NOTICE_LINES])
            return
        rows = MAX_HINT_ROWS if self.app.size.height >= TWO_HINT_ROWS_LINES else 1
        lines = hint_lines(self._area, max(20, self.size.width), rows, self._rows)
        self._rows = max(self._rows, len(lines))
        self._show_rows(lines)

    def _show_rows(self, lines: Sequence[TextLine]) -> None:
        self.show_lines(*lines, *[()] * (self._rows - len(lines)))

    def on_resize(self) -> None:
        """More or fewer of them fit."""
        self._redraw_hints()


@lru_cache(MAX_KEPT_HINTS)
def hint_lines(area: Area, width: int, rows: int, least: int) -> tuple[TextLine, ...]:
    """Keys of a place in at most `rows` rows of `width` cells.

    least: rows that are there in any case. Where fewer are needed they say in full what keys do: as
    many of the first as there is room.
    """
    hints = _hint_groups(area)
    # What does not fit is left out before the last: the menu, help and quit.
    last = ALWAYS_SHOWN_HINTS if "app" in focus_chain(area) else ALWAYS_SHOWN_HINTS - 1
    while len(lines := flow_groups(hints, width)) > rows and len(hints) > last:
        hints.pop(-last - 1)
    if len(lines) >= least:
        return tuple(lines)
    whole = _hint_groups(area, described=True)
    mixed = (
        flow_groups([*whole[:count], *hints[count:]], width) for count in range(len(hints), -1, -1)
    )
    return next(tuple(lines) for lines in mixed if len(lines) <= least)


def _hint_groups(area: Area, described: bool = False) -> list[TextLine]:
    """Each key of a place with its word, or with all that is said of it."""
    return [
        line(span(f" {key}", "tool"), span(f" {word}  ", "dim"))
        for key, word in hints_for(area, described)
    ]


class HoustonScreen(FrameAfterKey, Screen[None]):
    """A screen that the app brings up to date. Its areas are composed by `compose_body`."""

    area: Area
    """Where the focus is: which keys can be pressed."""
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """As Textual's own, which draws the whole screen for it: frames and cursors change, no more."""

    def _compositor_refresh(self) -> None:
        """Nothing while another full screen hides it: Textual would draw that one again, whole.
        Below a dialog what changed is drawn: Textual would draw all of it, from the second time on.
        """
        stack = self.app.screen_stack
        above = stack[stack.index(self) + 1 :] if self in stack else ()
        if not above:
            super()._compositor_refresh()
            return
        changed = self._compositor._dirty_regions
        if any(isinstance(screen, HoustonScreen) for screen in above):
            self._repaint_required = True  # once it is seen again
        elif changed:
            above[-1].refresh(*changed)
        self._dirty_widgets.clear()
        changed.clear()

    def _update_focus_styles(
        self, focused: Widget | None = None, blurred: Widget | None = None
    ) -> None:
        """Style again what looks otherwise with the focus within it.

        Textual would style the whole area, though the focus came from within it and stays there.
        """
        entered = set(focused.ancestors_with_self if focused else ())
        blurred_nodes = set(blurred.ancestors_with_self if blurred else ())
        changed = {
            node
            for widget in entered ^ blurred_nodes
            if widget._has_focus_within
            for node in widget.walk_children(with_self=True)
            if node._has_focus_within
        }
        if changed:
            self.app.stylesheet.update_nodes(changed, animate=True)

    def __init__(self, state: ConsoleState, home: str) -> None:
        """home: how the home is named to people."""
        super().__init__()
        self._compositor = FrameCompositor()
        self.state = state
        self.status, self.hints = StatusBar(id="status"), HintBar(id="hints")
        self.undo = UndoBar(id="undo")
        self.greeting = GreetingBar(state.greeting)
        self._home = home

    def compose(self) -> ComposeResult:
        """The areas between two lines."""
        yield self.status
        yield self.greeting
        yield from self.compose_body()
        yield self.undo
        yield self.hints

    async def action_back(self) -> None:
        """Back to the screen below; nothing when a key before it has done so."""
        if self.is_active and len(self.app.screen_stack) > 1:
            self.app.pop_screen()

    def compose_body(self) -> ComposeResult:
        """What is between the two lines."""
        raise NotImplementedError

    async def refresh_from_state(self, changed: bool) -> None:
        """The state is as new as the newest commit; the board comes a moment later (`show_board`).

        changed: the rollouts are others than before. Raises HoustonError.
        """

    def show_board(self) -> None:
        """Who needs a person, and who is where, was read again."""

    def note_key(self, key: str) -> None:
        """A key was pressed: somebody is here. key: as Textual names it."""

    @property
    def current_location(self) -> tuple[str, int]:
        """Which rollout is looked at here, and at which step; an empty name for none."""
        return "", 0

    def run_latest(self, work: Callable[[], Coroutine[Any, Any, None]], group: str) -> None:
        """Do something that no key waits for; instead of what the group was doing."""
        self.run_worker(cast(Any, work), group=group, exclusive=True)

    def show_link_state(self) -> None:
        """The daemon came, or went, or took what was sent."""

    @on(events.Resize)
    def fit_hints(self) -> None:
        """Hints take more or fewer rows in another height, too."""
        self.hints.on_resize()

    def on_screen_resume(self) -> None:
        """It is shown, for the first time or again."""
        self.greeting.show()
        self.refresh_status()

    def refresh_status(self) -> None:
        """Say how things stand; called once a second, so it draws only what has changed."""
        self.status.show_state(self.state, self._home)
        self.show_undo_offers()

    def show_undo_offers(self) -> None:
        """Say what can be taken back, and by which key: a letter is none while somebody types."""
        key = key_label("undo", "take_back(True)" if self.is_typing else "take_back")
        self.undo.show_offers(self.state.undo_lines, key)

    @property
    def is_typing(self) -> bool:
        """Whether somebody types here: letters are letters."""
        return isinstance(self.app.focused, (Input, TextArea))

    def show_message(self, text: str, tone: Tone) -> None:
        """Say something until the next key."""
        self.hints.show_message(text, tone)

    def show_error(self, problem: HoustonError) -> None:
        """Show an error: cause, effect, next."""
        follow = f"  next: {problem.next}" if problem.next else ""
        text = " ".join(part for part in (problem.cause, problem.effect) if part)
        self.show_message(text + follow, "error")
