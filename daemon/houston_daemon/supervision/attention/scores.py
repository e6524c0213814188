"""Signals about scores and budgets: a worse score, little left, an end with a low score."""

from houston_daemon.supervision.attention.window import EVALUATION, Window
from houston_shared.task import Attention


def score_fell(window: Window, limits: Attention) -> str:
    """A submission scored clearly less than the best one so far."""
    scores, best = _scores(window), window.left.best
    if not scores or best is None or not limits.score_drop:
        return ""
    fell = scores[-1] <= best - limits.score_drop
    return f"scored {scores[-1]:g}, best was {best:g}" if fell else ""


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
    """The agent asked to finish and its best score is low, or there is none."""
    left = window.left
    asked = any(
        call.name == "finish" or call.fields.get("finished") is True for call in window.now.calls
    )
    if not (asked and left.evaluations and limits.low_score):
        return ""
    if left.best is None:
        return "asked to finish without a score"
    low = left.best < limits.low_score
    return f"asked to finish with a best score of {left.best:g}" if low else ""


def _scores(window: Window) -> list[float]:
    """Scores of the newest step, in order."""
    found = (
        call.fields.get("overall_score") for call in window.now.calls if call.kind == EVALUATION
    )
    return [float(score) for score in found if isinstance(score, int | float)]
