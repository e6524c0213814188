"""A few numbers as a line of block characters."""

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
TOP = 100.0
"""Scores go from 0 to 100; what is higher stretches the scale."""


def sparkline(values: Sequence[float], most: int) -> str:
    """The last `most` values, one character each, on a scale from 0 to 100."""
    if most <= 0:
        return ""
    shown = values[-most:]
    top = max([TOP, *shown])
    return "".join(BLOCKS[_level(value, top)] for value in shown)


def _level(value: float, top: float) -> int:
    share = min(max(value / top, 0.0), 1.0)
    return min(len(BLOCKS) - 1, int(share * len(BLOCKS)))
