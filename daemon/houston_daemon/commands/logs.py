"""`houston daemon logs`: the end of the daemon's or an engine's log, and what is added to it."""

import argparse
from pathlib import Path

from houston_daemon.service.engine_places import engine_log
from houston_daemon.service.log_reading import follow, tail
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole


def arguments(parser: argparse.ArgumentParser) -> None:
    """`-f`, `-n`, `--engine`."""
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more")
    parser.add_argument("-n", "--lines", type=whole(), default=40, metavar="N", help="last N lines")
    parser.add_argument("--engine", metavar="NAME", help="the log of this engine instead")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print lines; with `-f` until Ctrl-C, over rotations."""
    path = _engine(loaded, arguments.engine) if arguments.engine else _own(loaded)
    lines, end = tail(path, arguments.lines)
    for line in lines:
        out.line(line)
    if arguments.follow:
        for line in follow(path, end):
            out.line(line)
            out.flush()
    return int(ExitCode.DONE)


def _own(loaded: Loaded) -> Path:
    path = loaded.home.logs / "daemon.log"
    if not path.exists():
        raise HoustonError(f"There is no log {path}.", next="houston daemon start")
    return path


def _engine(loaded: Loaded, name: str) -> Path:
    path = engine_log(loaded.home, name)
    if not path.exists():
        there = sorted(file.stem for file in path.parent.glob("*.log"))
        raise HoustonError(
            f"There is no log of an engine {name!r}; there are: {', '.join(there) or 'none'}.",
            next="houston daemon status",
        )
    return path
