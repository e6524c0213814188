"""`houston rollout resume R`: let a paused rollout go on, or a failed one that is sound."""

import argparse

from houston_console.headless import steer
from houston_console.headless.steer import arguments
from houston_shared.config import Loaded

__all__ = ["arguments", "run"]


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Ask the daemon for it."""
    return steer.run(arguments, loaded, "resume")
