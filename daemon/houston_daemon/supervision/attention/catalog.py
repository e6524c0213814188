"""The set of signals: their names, in the order in which a step lists them, and its version."""

from collections.abc import Callable, Mapping

from houston_daemon.supervision.attention import files, repeats, scores, waiting, wrong
from houston_daemon.supervision.attention.window import Window
from houston_shared.task import Attention

VERSION = 1
"""Raised when a signal is added, taken away, or holds in other cases than before."""
Says = Callable[[Window, Attention], str]
SIGNALS: Mapping[str, Says] = {
    "interrupted": wrong.interrupted,
    "null_action": wrong.null_action,
    "error": wrong.error,
    "forged_tag": wrong.forged_tag,
    "error_streak": wrong.error_streak,
    "repeated_action": repeats.repeated_action,
    "blind_edit": files.blind_edit,
    "no_change": files.no_change,
    "long_sleep": waiting.long_sleep,
    "idle_sleep": waiting.idle_sleep,
    "repeated_evaluation": repeats.repeated_evaluation,
    "score_fell": scores.score_fell,
    "near_budget": scores.near_budget,
    "low_finish": scores.low_finish,
}
LONGEST_REASON = 300
"""Characters."""


def signals(window: Window, limits: Attention) -> dict[str, str]:
    """The signals that hold for the newest step of `window`, each with its reason in words."""
    found = ((name, says(window, limits)) for name, says in SIGNALS.items())
    return {name: reason[:LONGEST_REASON] for name, reason in found if reason}
