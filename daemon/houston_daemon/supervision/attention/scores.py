"""Signals about scores and budgets: a worse score, none better, little left, a low end."""

from houston_daemon.supervision.attention.window import EVALUATION, Window
from houston_shared.task import Attention

HIGHEST = 100.0
"""No score is better."""


def score_fell(window: Window, limits: Attention) -> str:
    """A submission scored clearly less than the best one so far."""
    scores, best = _scores(window), window.left.best
    if not scores or best is None or not limits.score_drop:
        return ""
    fell = scores[-1] <= best - limits.score_drop
    return f"scored {scores[-1]:g}, best was {best:g}" if fell else ""


def no_gain(window: Window, limits: Attention) -> str:
    """No better score for several submissions, or for long: active time since the best score, or
    since the beginning where there is none. Not where the best score is the highest there is.
    """
    left = window.left
    if not left.evaluations or left.finished or (left.best or 0.0) >= HIGHEST:
        return ""
    found = []
    if limits.no_gain_evaluations and left.since_gain >= limits.no_gain_evaluations:
        found.append(f"in {left.since_gain} evaluations")
    if limits.no_gain_seconds and left.seconds_since_gain >= limits.no_gain_seconds:
        found.append(f"for {left.seconds_since_gain / 3600:.1f} h of active time")
    what = "no score" if left.best is None else f"no better score than {left.best:g}"
    return f"{what} {' and '.join(found)}" if found else ""


def near_budget(window: Window, limits: Attention) -> str:
    """Little is left of a budget: steps, active time, or submissions."""
    left, share = window.left, limits.budget_share
    if left.finished:
        return ""
    found = []
    if share and left.steps_left <= left.steps * share:
        found.append(f"{left.steps_left} of {left.steps} steps left")
    if share and left.seconds_left <= left.seconds * share:
        found.append(f"{100 * max(0.0, left.seconds_left) / left.seconds:.0f}% of active time left")
    least = limits.evaluations_left
    if least and _scores(window) and left.evaluations_left <= least:
        found.append(f"{left.evaluations_left} of {left.evaluations} evaluations left")
    return "; ".join(found)


def low_finish(window: Window, limits: Attention) -> str:
    """The agent asked to finish, or a budget ended it, with a low best score or without any."""
    left = window.left
    asked = any(
        call.name == "finish" or call.fields.get("finished") is True for call in window.now.calls
    )
    if not ((asked or left.finished) and left.evaluations and limits.low_score):
        return ""
    how = "asked to finish" if asked else "ended by its budget"
    if left.best is None:
        return f"{how} without a score"
    low = left.best < limits.low_score
    return f"{how} with a best score of {left.best:g}" if low else ""


def _scores(window: Window) -> list[float]:
    """Scores of the newest step, in order."""
    found = (
        call.fields.get("overall_score") for call in window.now.calls if call.kind == EVALUATION
    )
    return [float(score) for score in found if isinstance(score, int | float)]
