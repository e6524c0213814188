"""Curves of a training with their values, as lines of text: one chart, or as many side by side as
fit.

A chart has a title, the highest and the lowest value at its left, and the curve in braille. Many
points are averaged into what the width can show. It knows neither screens nor colours.
"""

from collections.abc import Sequence
from typing import NamedTuple

from houston_console.commands.policy_report import curve_title, format_value
from houston_console.widgets.braille_chart import DOT_COLUMNS, ChartPoint, draw_curve
from houston_shared.training_figures import Curve, CurvePoint

LABEL_CELLS = 8
"""Cells of a value at the left, and one behind it."""
MIN_CHART_CELLS = 36
"""Cells that a chart with its values has at least: fewer stand side by side."""
MAX_CHART_CELLS = 72
GAP_CELLS = 2
CHART_LINES = 4
"""Lines of a curve, without its title."""


def chart_lines(curve: Curve, width: int, height: int = CHART_LINES) -> list[str]:
    """A curve under its title, each line `width` cells; a flat one is drawn in the middle."""
    cells = width - LABEL_CELLS
    points = average_points(curve.points, cells * DOT_COLUMNS)
    low, high = min(value for _, value in points), max(value for _, value in points)
    drawn = draw_curve(scale_points(points, low, high), cells, height)
    labels = [""] * height
    labels[0] = format_value(high)
    if height > 1 and high > low:
        labels[-1] = format_value(low)
    title = curve_title(curve)
    title = title if len(title) <= width else f"{title[: width - 1]}…"
    rows = [f"{label:>{LABEL_CELLS - 1}} {row}" for label, row in zip(labels, drawn, strict=True)]
    return [title.ljust(width), *rows]


def average_points(points: Sequence[CurvePoint], max_points: int) -> list[CurvePoint]:
    """At most `max_points`, each the mean of as many neighbours; the last one stays as it is."""
    if len(points) <= max(2, max_points):
        return list(points)
    buckets = max(1, max_points - 1)
    rest, averaged = points[:-1], []
    for number in range(buckets):
        part = rest[number * len(rest) // buckets : (number + 1) * len(rest) // buckets]
        if part:
            at = sum(at for at, _ in part) / len(part)
            averaged.append((at, sum(value for _, value in part) / len(part)))
    return [*averaged, points[-1]]


def scale_points(points: Sequence[CurvePoint], low: float, high: float) -> list[ChartPoint]:
    """Points as a chart draws them, from 0 to 1; what has no extent lies in the middle."""
    first, last = points[0][0], points[-1][0]
    return [
        (
            (at - first) / (last - first) if last > first else 0.5,
            (value - low) / (high - low) if high > low else 0.5,
        )
        for at, value in points
    ]


class ChartRow(NamedTuple):
    """One line of charts side by side."""

    text: str
    is_title: bool = False


def chart_grid(curves: Sequence[Curve], width: int, height: int = CHART_LINES) -> list[ChartRow]:
    """All of them, as many side by side as `width` has room for."""
    columns = max(1, (width + GAP_CELLS) // (MIN_CHART_CELLS + GAP_CELLS))
    row_count = -(-len(curves) // columns)
    columns = (
        -(-len(curves) // max(1, row_count)) or 1
    )  # four charts in two rows, not three and one
    cells = min(MAX_CHART_CELLS, (width + GAP_CELLS) // columns - GAP_CELLS)
    if cells <= LABEL_CELLS:
        return [ChartRow(curve_title(curve)[: max(0, width)], True) for curve in curves]
    rows: list[ChartRow] = []
    for start in range(0, len(curves), columns):
        charts = [chart_lines(curve, cells, height) for curve in curves[start : start + columns]]
        gap = " " * GAP_CELLS
        rows += [
            ChartRow(gap.join(parts).rstrip(), number == 0)
            for number, parts in enumerate(zip(*charts, strict=True))
        ]
    return rows
