"""`houston rollout pause R`: pause a rollout; the agent stops at its next safe point."""

import argparse

from houston_console.headless import steer
from houston_console.headless.steer import arguments
from houston_shared.config import Loaded

__all__ = ["arguments", "run"]


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Ask the daemon for it."""
    return steer.run(arguments, loaded, "pause")
