"""Scores over active time as an inline drawing (SVG); each point leads to its step.

What people said stands in it as lines, so that one sees what came of it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from houston_console.commands.rollout_page.page_elements import element
from houston_console.commands.rollout_summary import format_score
from houston_shared.times_and_counts import format_clock

WIDTH, HEIGHT = 960, 210
LEFT, RIGHT, TOP, BOTTOM = 44, 20, 14, 26
_TICKS = 4
"""Steps of the scale."""


class ChartPoint(NamedTuple):
    """Something at a step. value: a score; None for what people said."""

    step: int
    seconds: float
    value: float | None
    title: str


def score_chart(points: Sequence[ChartPoint], end: float) -> Element | None:
    """The drawing; None where nothing was scored. end: active seconds of the whole rollout."""
    scores = [point for point in points if point.value is not None]
    if not scores:
        return None
    values = [point.value or 0.0 for point in scores]
    low, high = _scale(values)
    last = max(end, *(point.seconds for point in points), 1.0)

    def x(seconds: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * seconds / last, 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

    drawing = element("svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", kind="chart")
    drawing.append(element("title", f"Scores over {format_clock(last)} of active time"))
    for tick in range(_TICKS + 1):
        value = low + (high - low) * tick / _TICKS
        drawing.append(_line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid"))
        drawing.append(_label(LEFT - 8, y(value) + 4, format_score(value), "end"))
        seconds = last * tick / _TICKS
        anchor = "start" if not tick else "end" if tick == _TICKS else "middle"
        drawing.append(_label(x(seconds), HEIGHT - 6, format_clock(seconds), anchor))
    for point in points:
        if point.value is None:
            line = _line(x(point.seconds), TOP, x(point.seconds), HEIGHT - BOTTOM, "said")
            drawing.append(_link_to_step(point, line))
    path = " ".join(f"{x(point.seconds)},{y(point.value or 0.0)}" for point in scores)
    drawing.append(element("polyline", kind="scores", points=path))
    for point in scores:
        place = {"cx": str(x(point.seconds)), "cy": str(y(point.value or 0.0)), "r": "4.5"}
        drawing.append(_link_to_step(point, element("circle", kind="score", **place)))
    keys = [element("span", "score of a submission", kind="scored")]
    if len(scores) < len(points):
        keys.append(element("span", "somebody spoke to the agent", kind="guided"))
    return element("figure", drawing, element("figcaption", *keys))


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest value of the scale: 0, and 1, 2 or 5 times a power of ten."""
    low = min(0.0, *values)
    most = max(values) - low
    if most <= 0:
        return low, low + 1.0
    power = 10.0 ** math.floor(math.log10(most))
    step = next(step for step in (1, 2, 5, 10) if step * power >= most * (1 - 1e-9))
    return low, low + step * power


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Element:
    return element("line", kind=kind, x1=str(x1), y1=str(y1), x2=str(x2), y2=str(y2))


def _label(x: float, y: float, text: str, anchor: str) -> Element:
    return element("text", text, kind="label", x=str(x), y=str(y), text_anchor=anchor)


def _link_to_step(point: ChartPoint, mark: Element) -> Element:
    mark.append(element("title", point.title))
    return element("a", mark, href=f"#step-{point.step}")
