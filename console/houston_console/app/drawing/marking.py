"""Highlights what a search found, on top of a line that is drawn already."""

from collections.abc import Sequence

from rich.style import Style
from textual.strip import Strip


def mark(strip: Strip, text: str, needles: Sequence[str], style: Style) -> Strip:
    """`strip`, which shows `text`, with every place of a needle in `style`; any case."""
    low = text.lower()
    if len(low) != len(text):  # a few letters change their length: places would be off
        return strip
    return mark_places(strip, _places(low, needles), style)


def mark_places(strip: Strip, places: Sequence[tuple[int, int]], style: Style) -> Strip:
    """`strip` with the characters of each place in `style`.

    A place may lie behind the end: a line that was not measured again yet is cut off there.
    """
    shown = len(strip.text)
    within = [(start, min(end, shown)) for start, end in _apart(places) if start < shown]
    cuts = [strip.index_to_cell_position(at) for place in within for at in place]
    if not cuts:
        return strip
    parts = list(strip.divide([*cuts, strip.cell_length]))
    for index in range(1, len(parts), 2):
        parts[index] = Strip([segment._replace(style=style) for segment in parts[index]])
    return Strip.join(parts)


def _places(low: str, needles: Sequence[str]) -> list[tuple[int, int]]:
    """Where needles begin and end."""
    found: list[tuple[int, int]] = []
    for needle in filter(None, (one.lower() for one in needles)):
        at = low.find(needle)
        while at >= 0:
            found.append((at, at + len(needle)))
            at = low.find(needle, at + len(needle))
    return found


def _apart(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places in order, without overlaps."""
    kept: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if not kept or start > kept[-1][1]:
            kept.append((start, end))
        elif end > kept[-1][1]:
            kept[-1] = (kept[-1][0], end)
    return kept
