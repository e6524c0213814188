"""A long text to read: drawn line by line, searched in, with what was found marked.

Knows nothing of requests; whoever makes the lines may make each of them only when it is asked for.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from textual.strip import Strip

from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, plain
from houston_console.app.drawing.marking import mark

BARS = ("│ ", "+ ", "− ", "→ ")
"""How a span ends that is the edge of a line and none of its text."""


class LongText(LineView):
    """Lines, and where in them something is."""

    has_cursor = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.lines: Sequence[Line] = ()
        self.whole = ("the whole text", "")
        """What a key copies."""
        self.needle = ""
        self.hits: list[int] = []
        """Numbers of lines in which the needle begins."""

    def line_count(self) -> int:
        """As many as there are."""
        return len(self.lines)

    def line_at(self, number: int) -> Line:
        """One of them."""
        return self.lines[number]

    async def copied(self) -> tuple[str, str]:
        """The whole, as it is and not as it is wrapped here."""
        return self.whole

    def render_line(self, y: int) -> Strip:
        """One line of the screen, with what was found marked."""
        strip = super().render_line(y)
        return mark(strip, strip.text, [self.needle], self.palette.hit) if self.needle else strip

    def put(self, lines: Sequence[Line], hits: list[int], at: int) -> None:
        """Show other lines, with the line `at` at the top."""
        self.lines, self.hits = lines, hits
        self.show()
        self.jump(at)

    def next_hit(self, by: int) -> int:
        """Show the next line with a hit, or the one before, round the end; its place from 1."""
        top = round(self.scroll_y)
        at = bisect_right(self.hits, top) if by > 0 else bisect_left(self.hits, top) - 1
        at %= len(self.hits)
        self.jump(self.hits[at])
        return at + 1


def found_in(lines: Sequence[Line], needle: str) -> list[int]:
    """Lines in which `needle` begins, in any case; also where it goes on in the next line."""
    wanted = " ".join(needle.casefold().split())
    if not wanted:
        return []
    texts = [_text(one) for one in lines]
    starts, at = [], 0
    for one in texts:
        starts.append(at)
        at += len(one) + 1
    whole = " ".join(texts)
    found: list[int] = []
    place = whole.find(wanted)
    while place >= 0:
        number = bisect_right(starts, place) - 1
        if not found or found[-1] != number:
            found.append(number)
        place = whole.find(wanted, place + 1)
    return found


def _text(parts: Line) -> str:
    """What a line says, without its edge."""
    edge = len(parts) > 1 and parts[0].text.endswith(BARS)
    return plain(parts[1:] if edge else parts).strip().casefold()
