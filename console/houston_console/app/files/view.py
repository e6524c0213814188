"""Diffs one after the other, or what a search found: text of some steps, with grounds behind it."""

from collections.abc import Sequence
from typing import Any

from rich.style import Style
from textual.strip import Strip

from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, block
from houston_console.app.drawing.marking import mark
from houston_console.app.files.diffs import Drawn, Stretch
from houston_console.app.files.lines import WIDE, Change, change_lines, result_lines
from houston_shared.store.queries.world import Search

MOST = 4_000
"""Lines that are made at most; what is left out is said."""


class DiffText(LineView):
    """The lower half of files and searches."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.changes: Sequence[Change] = ()
        self.result: tuple[Search, str] | None = None
        self.side_by_side: bool | None = None
        """Old and new beside each other; None for where there is room."""
        self._drawn: list[Drawn] = []
        self._steps: list[int] = []
        self._made_for: tuple[int, bool] = (0, False)

    def line_count(self) -> int:
        """Lines of all diffs."""
        return len(self._drawn)

    def line_at(self, number: int) -> Line:
        """One line of a diff."""
        return self._drawn[number].line

    @property
    def beside(self) -> bool:
        """Whether old and new stand side by side now."""
        return self.room >= WIDE if self.side_by_side is None else self.side_by_side

    def take(
        self, changes: Sequence[Change] = (), result: tuple[Search, str] | None = None
    ) -> None:
        """Show other diffs, or a result, from the start."""
        if (changes, result) != (self.changes, self.result):
            self.changes, self.result, self._made_for = changes, result, (0, False)
            self.show()
            self.jump(0)

    def show(self) -> None:
        """Make the lines for the width there is."""
        wanted = (self.room, self.beside)
        if self._made_for != wanted:
            self._made_for = wanted
            self._drawn, self._steps = [], []
            if self.result is not None:
                self._add(self.result[0].step, result_lines(*self.result, self.room))
            for one in self.changes:
                self._add(one.made.step, change_lines(one, *wanted))
        super().show()

    def _add(self, step: int, made: list[Drawn]) -> None:
        room = MOST - len(self._drawn)
        if len(made) > room:
            words = f"… {len(made) - room:,} more lines: `houston files` shows all"
            made = [*made[:room], *(Drawn(row) for row in block(words, self.room, "dim"))]
        self._drawn += made if room > 0 else []
        self._steps += [step] * (len(self._drawn) - len(self._steps))

    def render_line(self, y: int) -> Strip:
        """One line of the screen: grounds behind what changed, the words of a search marked."""
        strip = super().render_line(y)
        number = round(self.scroll_y) + y
        if number >= len(self._drawn):
            return strip
        for ground in self._drawn[number].grounds:
            strip = _over(strip, ground, self._style(ground))
        if self.result is not None and number > 1:
            strip = mark(strip, strip.text, [self.result[0].query], self.palette.hit)
        return strip

    def _style(self, ground: Stretch) -> Style:
        return self.palette.added if ground.kind == "+" else self.palette.removed

    @property
    def top_step(self) -> int | None:
        """The step of what is at the top."""
        at = round(self.scroll_y)
        return self._steps[at] if at < len(self._steps) else None

    def toggle(self) -> None:
        """Side by side, or one below the other."""
        self.side_by_side = not self.beside
        self.show()
        self.refresh()

    def scroll_pages(self, by: float) -> None:
        """Scroll by so much of the height."""
        self.jump(round(self.scroll_y + by * max(1, self.size.height)))


def _over(strip: Strip, ground: Stretch, style: Style) -> Strip:
    """`strip` with another ground, or colour, between two cells."""
    within = strip.crop(ground.start, ground.end)
    styled = [one._replace(style=(one.style or Style()) + style) for one in within]
    return Strip.join([strip.crop(0, ground.start), Strip(styled), strip.crop(ground.end)])
