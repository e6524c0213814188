"""`houston daemon restart`: stop and start; engines run on, rollouts go on where they were."""

import argparse

from houston_daemon.commands import start, stop
from houston_daemon.service.halt import halt
from houston_daemon.service.launch import launch
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode


def arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond the common flags."""


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Stop the daemon if one runs, then start it."""
    stop.say(halt(loaded, keep_engine=True), loaded)
    start.say(launch(loaded), loaded)
    return int(ExitCode.DONE)
