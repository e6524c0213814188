"""Which trackers a training reports to: the setting `report_to` of every recipe.

It knows names only and imports neither a tracker nor torch; `run_trackers` tells them the figures.
"""

import importlib.util
from typing import Literal, TypeAlias

from houston_shared.errors import ConfigurationError

Tracker = Literal["trackio", "wandb", "tensorboard"]
ReportTo: TypeAlias = (
    Literal["auto", "none", "trackio", "wandb", "tensorboard"] | tuple[Tracker, ...]
)
TRACKERS_EXTRA = "houston-agents[trackers]"


def chosen_trackers(report_to: ReportTo) -> tuple[str, ...]:
    """The trackers that a recipe means, each once: `auto` is trackio where it is installed."""
    if report_to == "auto":
        return ("trackio",) if _is_installed("trackio") else ()
    if report_to == "none":
        return ()
    names = (report_to,) if isinstance(report_to, str) else report_to
    return tuple(dict.fromkeys(names))


def require_trackers(report_to: ReportTo) -> None:
    """Raise ConfigurationError where a tracker that was named is not installed."""
    for tracker in chosen_trackers(report_to):
        if not _is_installed(tracker):
            raise ConfigurationError(
                f"report_to names {tracker}, which is not installed.",
                "Nothing was trained.",
                f"pip install '{TRACKERS_EXTRA}', or --set report_to=none",
            )


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
