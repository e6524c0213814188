"""The set of signals: their names, in the order in which a step lists them, and its version.

Packages bring further ones by entry point (docs/extending.md); a task names those that it wants.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from houston_daemon.supervision.attention import background, files, repeats, scores, waiting, wrong
from houston_daemon.supervision.attention.window import Window
from houston_shared import plugins
from houston_shared.errors import ConfigurationError
from houston_shared.task import Attention

log = logging.getLogger(__name__)
VERSION = 3
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
    "job_failed": background.job_failed,
    "score_fell": scores.score_fell,
    "no_gain": scores.no_gain,
    "near_budget": scores.near_budget,
    "low_finish": scores.low_finish,
}
LONGEST_REASON = 300
"""Characters."""


def chosen(names: tuple[str, ...]) -> dict[str, Says]:
    """Houston's signals, then those of packages. names: the entry points that a task names.

    Raises ConfigurationError for one that is not installed, cannot be imported or is no function.
    """
    found = dict(SIGNALS)
    for name in names:
        if name in SIGNALS:
            raise ConfigurationError(
                f"The signal {name!r} is Houston's own and always there.",
                next="Take it out of `signals`; its threshold is another key of [attention].",
            )
        found[name] = _guarded(name, plugins.load(plugins.SIGNALS, name, "signal"))
    return found


def signals(
    window: Window, limits: Attention, among: Mapping[str, Says] = SIGNALS
) -> dict[str, str]:
    """The signals that hold for the newest step of `window`, each with its reason in words."""
    found = ((name, says(window, limits)) for name, says in among.items())
    return {name: reason[:LONGEST_REASON] for name, reason in found if reason}


def _guarded(name: str, says: Any) -> Says:
    """A package's signal; what is wrong with its code marks the step, and ends no rollout."""
    if not callable(says):
        raise ConfigurationError(f"The signal {name!r} is no function but {says!r}.")

    def guarded(window: Window, limits: Attention) -> str:
        try:
            reason = says(window, limits)
        except Exception as problem:
            log.warning("the signal %s failed", name, exc_info=True)
            return f"the code of this signal failed: {type(problem).__name__}: {problem}"
        if isinstance(reason, str):
            return reason
        return f"the code of this signal failed: it gave {reason!r}, which is no text"

    return guarded
