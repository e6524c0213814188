"""What an evaluator printed, as a score from 0 to 100 and metrics. Starts nothing."""

import json
import math
from typing import Any, NoReturn

from houston_shared.safe_text import safe
from houston_shared.task_tables import Evaluate

_METRICS = 50
_METRIC_TEXT = 500
_SCALED = Evaluate()


class Malformed(Exception):
    """The evaluator's output is not what a task file promises; the text says how."""


def read_score(
    output: bytes, cut: bool = False, scale: Evaluate = _SCALED
) -> tuple[float, dict[str, Any]]:
    """The score and the other metrics in an evaluator's output.

    output: one JSON object with `overall_score`, a number from 0 to 100, or with `raw_score` where
    `scale` has both ends of a scale. Numbers, booleans and short strings among its other members
    are metrics. Raises Malformed.
    """
    if cut:
        raise Malformed("its output is longer than 1 MB")
    if not output.strip():
        raise Malformed("it printed nothing")
    try:
        found = json.loads(output, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Malformed("its output is not one JSON object") from None
    if not isinstance(found, dict):
        raise Malformed("its output is not one JSON object")
    if scale.baseline is not None and scale.reference is not None:
        found.pop("overall_score", None)
        raw = _number(found, "raw_score")
        score = scaled(raw, scale.baseline, scale.reference)
    else:
        score = _number(found, "overall_score")
        if not 0 <= score <= 100:
            raise Malformed("`overall_score` is not between 0 and 100")
        del found["overall_score"]
    return score, dict([_metric(*item) for item in found.items()][:_METRICS])


def scaled(raw: float, baseline: float, reference: float) -> float:
    """Points for a raw score: 0 at `baseline`, 100 at `reference`, linear and clipped.

    Source: APOLLO, appendix B.4.
    """
    share = (raw / 2 - baseline / 2) / (reference / 2 - baseline / 2)  # halves cannot overflow
    return round(100 * min(1.0, max(0.0, share)), 6)


def _number(found: dict[str, Any], name: str) -> float:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"`{name}` is missing or no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Malformed(
            f"`{name}` is not finite"
            if name == "raw_score"
            else "`overall_score` is not between 0 and 100"
        )
    return number


def _metric(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bool | int | float):
        small = isinstance(value, bool) or abs(value) < 2**53
        return str(safe(name[:60])), value if small else str(value)[:_METRIC_TEXT]
    return str(safe(name[:60])), str(safe(_text(value)[:_METRIC_TEXT]))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except RecursionError:  # writing needs a little more of the stack than reading
        return "[nested too deeply to be shown]"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
