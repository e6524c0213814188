"""The line at the top (daemon, rollouts, clock), the tabs of a small screen, the line of keys."""

import time
from collections.abc import Sequence
from typing import Any

from textual.strip import Strip
from textual.widget import Widget

from houston_console.app.drawing.lines import Line, Span, Tone, block, line, span, spread, width_of
from houston_console.app.drawing.palette import blank, palette
from houston_console.app.error_boundary import PaneBoundary
from houston_console.app.keys import Area, hints
from houston_console.app.rollouts.listing import STATES
from houston_console.app.state import ConsoleState

LAST = 2
"""Hints that are there at any width."""
MOST = 4
"""Lines that something to be told may take."""
MOST_OFFERED = 3
"""Acts that are shown to be taken back."""
WIDE = 120
"""Columns from which the home is named."""
LINKS: dict[str, tuple[str, str, Tone]] = {
    "live": ("●", "live", "success"),
    "reconnecting": ("◌", "reconnecting", "warning"),
    "down": ("○", "daemon down: reading only", "error"),
}


class Bar(PaneBoundary, Widget):
    """One line; drawn again only when it says something else."""

    DEFAULT_CSS = "Bar { height: 1; }"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._lines: tuple[Line, ...] = ()

    def put(self, *lines: Line) -> None:
        """Say something, in as many lines as the bar is high."""
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        if y >= len(self._lines) or not self._lines[y]:
            return blank(self.size.width, self.rich_style)
        colours = palette(self.app.current_theme, self.app.theme_variables)
        return colours.strip(self._lines[y], self.size.width, self.rich_style)


class StatusBar(Bar):
    """Daemon, rollouts by state, sequence, clock."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._taken: tuple[ConsoleState, str] | None = None

    def on_resize(self) -> None:
        """More or less of it fits."""
        if self._taken is not None:
            self.take(*self._taken)

    def take(self, state: ConsoleState, home: str) -> None:
        """Show how things stand now."""
        self._taken = (state, home)
        glyph, words, tone = LINKS[state.link]
        left: list[Span] = [span(" houston ", "title"), span(f" {glyph} {words} ", tone)]
        short: list[Span] = [*left]
        for kind, count in state.counts():
            mark, colour = STATES[kind]
            left += [span(f"  {mark} ", colour), span(f"{count} {kind}", "dim")]
            short += [span(f" {mark}", colour), span(f"{count}", "dim")]
        lag = f"  {state.lag} to read" if state.lag else ""
        clock = time.strftime("%H:%M %z")
        place = span(f"  {home}", "faint") if self.size.width >= WIDE else span("")
        right = line(place, span(f"  seq {state.seq}{lag}", "dim"), span(f"  {clock} "))
        room = max(20, self.size.width)
        if width_of(left) + width_of(right) > room:
            left, right = short, line(span(f"{lag}  {clock} ", "dim"))
        self.put(spread(tuple(left), right, room))


class TabBar(Bar):
    """Areas by number, for a screen that shows one at a time."""

    def take(self, area: Area) -> None:
        """Mark the area that is shown."""
        names: tuple[tuple[Area, str], ...] = (
            ("home", "0 Home"),
            ("rollouts", "1 Rollouts"),
            ("trajectory", "2 Trajectory"),
            ("terminals", "3 Terminals"),
            ("files", "4 Files"),
            ("composer", "5 Guide"),
        )
        on = "composer" if area == "queue" else area
        self.put(
            tuple(
                span(f" {name} ", "title") if key == on else span(f" {name} ", "faint")
                for key, name in names
            )
        )


class UndoBar(Bar):
    """What can be taken back, the newest in front; not there while nothing can."""

    DEFAULT_CSS = "UndoBar { display: none; height: 1; }"

    def take(self, offered: Sequence[tuple[str, str]], key: str) -> None:
        """offered: acts and how long still, the newest first. key: what takes the newest back."""
        self.display = bool(offered)
        lines = []
        for at, (words, left) in enumerate(offered[:MOST_OFFERED]):
            named = span("" if at else f" {key} ", "tool")
            right = line(
                named, span("" if at else "takes it back", "dim"), span(f" {left:>5} ", "dim")
            )
            tone: Tone = "dim" if at else "warning"
            lead = line(span("   then " if at else " ↶ ", tone), span(words, tone))
            lines.append(spread(lead, right, max(20, self.size.width)))
        if lines and (self.styles.height is None or self.styles.height.value != len(lines)):
            self.styles.height = len(lines)
        self.put(*lines)


class HintBar(Bar):
    """Keys of the area with the focus, or the last thing to be told."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._area: Area = "trajectory"
        self._message: Line = ()
        """What to tell, in one piece; wrapped for the width there is."""

    def area(self, area: Area) -> None:
        """The focus is there now."""
        self._area = area
        self._say()

    def tell(self, text: str, tone: Tone) -> None:
        """Say something until `quiet`."""
        self._message = line(span(text, tone))
        self._say()

    def quiet(self) -> None:
        """It was read."""
        if self._message:
            self._message = ()
            self._say()

    def _say(self) -> None:
        if self._message:
            words = self._message[0]
            told = block(words.text, max(20, self.size.width - 1), words.tone, span(" "))[:MOST]
            self._show(*told)
            return
        found = [line(span(f" {key}", "tool"), span(f" {word}  ", "dim"))
                 for key, word in hints(self._area)]  # fmt: skip
        # What does not fit is left out before the last two, help and quit.
        while len(found) > LAST and sum(map(width_of, found)) > self.size.width > 0:
            found.pop(-LAST - 1)
        self._show(tuple(part for hint in found for part in hint))

    def _show(self, *lines: Line) -> None:
        """As high as what is told needs: what to do next stands at its end."""
        if self.styles.height is None or self.styles.height.value != len(lines):
            self.styles.height = len(lines)
        self.put(*lines)

    def on_resize(self) -> None:
        """More or fewer of them fit."""
        self._say()
