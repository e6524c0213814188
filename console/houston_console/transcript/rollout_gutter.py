"""The whole rollout in two columns beside its steps: where calls failed, what scored, who spoke.

One column has a mark for each part of the rollout, the other an edge that is heavy beside those
parts whose steps are on the screen. A click goes there. Marks are counted from the index when it
grows, not when a frame is drawn.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from textual.message import Message

from houston_console.screens.base_screen import post_message_as
from houston_console.transcript.step_index import StepIndex
from houston_console.widgets.line_view import LineView
from houston_console.widgets.styled_text import TextLine, Tone, line, span

MOSTLY = 0.5
"""Part of the steps above which failures are said to be most of them."""
BEST_GLYPH, SCORE_GLYPH, GUIDANCE_GLYPH = "★", "☆", "✎"
FEW_GLYPH, SOME_GLYPH, MOST_GLYPH = "·", "▪", "█"
MANY = 0.1
"""Part of the steps from which on failures are more than a few."""
VIEW_GLYPH, OUTSIDE_GLYPH = "┃", "│"
"""Between the steps and the marks: beside parts that are on the screen, and beside others."""


class GutterMark(NamedTuple):
    """What a part of the rollout shows."""

    glyph: str = " "
    tone: Tone = "faint"


def part_bounds(steps: int, parts: int) -> list[int]:
    """First step of each part, and the step after the last; parts differ by one step at most."""
    count = min(steps, parts)
    return [1 + steps * number // count for number in range(count)] + [steps + 1] if count else [1]


def gutter_marks(index: StepIndex, steps: int, parts: int) -> list[GutterMark]:
    """A mark for each of at most `parts` parts of a rollout of `steps` steps.

    The first of these that a part has: guidance that was heard; failed calls in more than half of
    its steps; a score above all before it; failed calls in a tenth; another score; a failed call.
    """
    bounds = part_bounds(steps, parts)
    best = float("-inf")
    marks: list[GutterMark] = []
    for first, end in pairwise(bounds):
        low = bisect_left(index.scores, (first,))
        high = bisect_left(index.scores, (end,), low)
        highest = max((score for _, score in index.scores[low:high]), default=None)
        failures = index.failed.count(1, first, end) / (end - first)
        gained = highest is not None and highest > best
        if highest is not None:
            best = max(best, highest)
        if index.guided.count(1, first, end):
            marks.append(GutterMark(GUIDANCE_GLYPH, "guidance"))
        elif failures > MOSTLY:
            marks.append(GutterMark(MOST_GLYPH, "error"))
        elif gained:
            marks.append(GutterMark(BEST_GLYPH, "score"))
        elif failures >= MANY:
            marks.append(GutterMark(SOME_GLYPH, "error"))
        elif highest is not None:
            marks.append(GutterMark(SCORE_GLYPH, "dim"))
        elif failures:
            marks.append(GutterMark(FEW_GLYPH, "error"))
        else:
            marks.append(GutterMark())
    return marks


class RolloutGutter(LineView, can_focus=False):
    """One line for each part of the rollout."""

    has_cursor = False
    ALLOW_SELECT = False

    class Chosen(Message):
        """A part was clicked."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step
            """The first step of the part, or what stands out in it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._index, self._steps = StepIndex(), 0
        self._marks: list[GutterMark] = []
        self._bounds: list[int] = [1]
        self._view = (0, 0)
        self._seen = range(0)
        """Lines beside which steps are on the screen."""
        self._last_counts: tuple[int, ...] = ()
        """Of what the marks were counted: the index as it was, steps, parts."""

    def line_count(self) -> int:
        """As many lines as there is room for, so that nothing scrolls."""
        return self.size.height

    def line_at(self, number: int) -> TextLine:
        """A part's mark, and whether it is on the screen."""
        mark = self._marks[number] if number < len(self._marks) else GutterMark()
        is_visible = number in self._seen
        edge = span(VIEW_GLYPH, "title") if is_visible else span(OUTSIDE_GLYPH, "faint")
        return line(edge, span(mark.glyph, mark.tone))

    def show_whole(self, index: StepIndex, steps: int, view: tuple[int, int]) -> None:
        """Show a rollout of `steps` steps; view: first and last step on the screen.

        Only lines that look otherwise are drawn again.
        """
        self._index, self._steps, self._view = index, steps, view
        marks, seen_lines = self._marks, self._seen
        self._count()
        changed = set(seen_lines) ^ set(self._seen)
        if marks is not self._marks:
            pairs = zip_longest(marks, self._marks)
            changed.update(number for number, (old, new) in enumerate(pairs) if old != new)
        for number in changed:
            self.refresh_line(number)

    def _count(self) -> None:
        """What each line shows; marks only where the index has grown, or the height is another."""
        height = self.size.height
        counted = (id(self._index), self._index.version, self._steps, height)
        if counted != self._last_counts:
            self._last_counts = counted
            self._marks = gutter_marks(self._index, self._steps, height)
            self._bounds = part_bounds(self._steps, height)
        first, last = self._view
        lowest = max(0, bisect_right(self._bounds, first) - 1)
        self._seen = range(lowest, min(len(self._marks), bisect_right(self._bounds, last)))

    def show(self) -> None:
        """The height is another, and with it the parts."""
        self._count()
        super().show()

    def on_click(self, event: Any) -> None:
        """Go to the part that was clicked."""
        number = event.get_content_offset_capture(self).y
        if number < len(self._marks):
            first, end = self._bounds[number], self._bounds[number + 1]
            post_message_as(self, self.Chosen(marked_step(self._index, first, end)))


def marked_step(index: StepIndex, first: int, end: int) -> int:
    """The step of a part that its mark is about, else its first; end: the step after the part."""
    if (guided := index.guided.find(1, first, end)) >= 0:
        return guided
    low, high = bisect_left(index.scores, (first,)), bisect_left(index.scores, (end,))
    if low < high:
        return max(index.scores[low:high], key=lambda scored: scored[1])[0]
    failed = index.failed.find(1, first, end)
    return failed if failed >= 0 else first
