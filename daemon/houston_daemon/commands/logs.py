"""`houston daemon logs`: the end of the daemon's log, and what is added to it."""

import argparse

from houston_daemon.service.log_reading import follow, tail
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole


def arguments(parser: argparse.ArgumentParser) -> None:
    """`-f`, `-n`."""
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more")
    parser.add_argument("-n", "--lines", type=whole(), default=40, metavar="N", help="last N lines")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print lines; with `-f` until Ctrl-C, over rotations."""
    path = loaded.home.logs / "daemon.log"
    if not path.exists():
        raise HoustonError(f"There is no log {path}.", next="houston daemon start")
    lines, end = tail(path, arguments.lines)
    for line in lines:
        out.line(line)
    if arguments.follow:
        for line in follow(path, end):
            out.line(line)
            out.flush()
    return int(ExitCode.DONE)
