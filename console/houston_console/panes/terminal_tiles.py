"""How terminals stand, in a few words, and tiles with the last lines of those without the keys.

The words come from the marks of a terminal's shell: what runs and since when, how the last command
ended. `TerminalTiles` draws all tiles as one list of lines, so that they cost no widget each. Logs
are read by `terminal_log_reader`; which terminal has the keys is the pane's.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from houston_console.panes.terminal_log_reader import CommandRun, TerminalSnapshot
from houston_console.widgets.line_view import LineView
from houston_console.widgets.styled_text import (
    TextLine,
    Tone,
    justify_line,
    line,
    line_width,
    span,
)
from houston_shared.times_and_counts import format_age, format_duration, now_us


class TerminalState(NamedTuple):
    """How a terminal stands."""

    glyph: str = ""
    """`…` a command runs, `$` idle, `✗2` the last one failed with exit code 2."""
    words: str = ""
    """Since when, or that nothing is."""
    tone: Tone = "dim"

    @property
    def text(self) -> str:
        """Both."""
        return f"{self.glyph} {self.words}".strip()


def terminal_state(snapshot: TerminalSnapshot) -> TerminalState:
    """How a terminal stands by its log; nothing where that has no marks."""
    index = snapshot.log_index
    if index is None or not index.commands:
        return TerminalState()
    last = index.commands[-1]
    if not last.end:
        return TerminalState("…", duration_since(last.started_at), "tool")
    if last.exit_code:
        ago = format_age(int(last.ended_at * 1e6), now_us()) if last.ended_at else ""
        return TerminalState(f"✗{last.exit_code}", ago, "error")
    return TerminalState("$", "idle")


def duration_since(started_at: float) -> str:
    """How long ago that was, in steps of 10 s at first: it is drawn again for each of them."""
    if not started_at:
        return ""
    seconds = max(0, int(time.time() - started_at))
    if seconds < 100:
        return f"{max(1, seconds // 10 * 10)} s"
    return format_duration(seconds if seconds < 100 * 60 else seconds // 3600 * 3600)


def command_outcome(run: CommandRun | None) -> TextLine:
    """What stands at the right of a prompt: how its command ended, and how long it took."""
    if run is None:
        return ()
    if not run.end:
        return (span(f" … {duration_since(run.started_at)}".rstrip(), "tool"),)
    took = "" if run.seconds is None else f" {format_duration(round(run.seconds, 1))}"
    if run.exit_code is None:
        return (span(" ?", "dim"),)
    if run.exit_code:
        return (span(f" ✗{run.exit_code}", "error"), span(took, "dim"))
    return (span(" ✓", "success"), span(took, "dim"))


def tab_titles(
    terminals: Sequence[tuple[str, TerminalSnapshot]], chosen: int, room: int
) -> list[str]:
    """Titles of the tabs in at most `room` cells: with states, with glyphs, or names alone.

    chosen: which one has the keys; where not even names have room, it and its neighbours are left.
    """
    states = [terminal_state(snapshot) for _, snapshot in terminals]
    names = [label for label, _ in terminals]
    whole = [f"{name} {state.text}".rstrip() for name, state in zip(names, states, strict=True)]
    short = [f"{name} {state.glyph}".rstrip() for name, state in zip(names, states, strict=True)]
    mixed = [whole[at] if at == chosen else text for at, text in enumerate(short)]
    for titles in (whole, mixed, short, names):
        marked = [f"‹{text}›" if at == chosen else text for at, text in enumerate(titles)]
        if sum(len(text) + 2 for text in marked) <= room:
            return marked
    while len(marked) > 2 and sum(len(text) + 2 for text in marked) > room:
        marked.pop(0 if chosen > len(names) // 2 else -1)
    return marked


class TileContent(NamedTuple):
    """A terminal that is shown as a tile."""

    at: int
    """Its place among the terminals of the rollout."""
    label: str
    snapshot: TerminalSnapshot


class TerminalTiles(LineView):
    """The last lines of several terminals, each below a line with its name and state."""

    has_cursor = False
    can_focus = False

    def __init__(self, choose: Callable[[int], None], **arguments: Any) -> None:
        """choose: called with the place of the terminal whose tile was clicked."""
        super().__init__(**arguments)
        self._choose = choose
        self._contents: Sequence[TileContent] = ()
        self._drawn_lines: list[tuple[int, TextLine]] = []

    def line_count(self) -> int:
        """As many lines as there is room for."""
        return len(self._drawn_lines)

    def line_at(self, number: int) -> TextLine:
        """A head, or a line of output."""
        return self._drawn_lines[number][1]

    def show_terminals(self, contents: Sequence[TileContent]) -> None:
        """Show these; drawn again only where something is new."""
        self._contents = contents
        drawn = self._draw(self.size.height) if self.display else []
        if drawn != self._drawn_lines:
            self._drawn_lines = drawn
            self.show()

    def _draw(self, rows: int) -> list[tuple[int, TextLine]]:
        contents = self._contents[: max(1, rows // 3)]
        drawn: list[tuple[int, TextLine]] = []
        for number, content in enumerate(contents):
            share = (rows - len(drawn)) // (len(contents) - number)
            drawn.append((content.at, self._head(content)))
            tail = _last_lines(content.snapshot, share - 1)
            blank = [()] * (share - 1 - len(tail))
            for parts in (*tail, *blank):
                drawn.append((content.at, justify_line(parts, (), self.line_cells)))
        return drawn

    def _head(self, content: TileContent) -> TextLine:
        state = terminal_state(content.snapshot)
        name: TextLine = (span("─ ", "faint"), span(f"{content.label} ", "key"))
        right: TextLine = (span(f" {state.text}", state.tone),) if state.text else ()
        rule = self.line_cells - line_width(name) - line_width(right)
        return justify_line((*name, span("─" * max(0, rule), "faint")), right, self.line_cells)

    def on_resize(self) -> None:
        """There is room for more lines, or for fewer."""
        self.show_terminals(self._contents)

    def on_click(self, event: Any) -> None:
        """The terminal that was clicked gets the keys."""
        number = round(self.scroll_y) + event.get_content_offset_capture(self).y
        if 0 <= number < len(self._drawn_lines):
            self._choose(self._drawn_lines[number][0])


def _last_lines(snapshot: TerminalSnapshot, count: int) -> list[TextLine]:
    """At most `count` lines at the end; or why there are none."""
    index = snapshot.log_index
    if index is None:
        lines = list(snapshot.screen_lines) or [line(span(snapshot.reason or "no output", "dim"))]
        return lines[-count:] if count > 0 else []
    numbers = range(max(0, index.lines - max(0, count)), index.lines)
    return [index.line(number) for number in numbers]
