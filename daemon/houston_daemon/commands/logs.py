"""`houston daemon logs`: the end of the daemon's, an engine's or a rollout's log, and what is
added to it."""

import argparse
from pathlib import Path

from houston_daemon.service.engine_places import engine_log
from houston_daemon.service.log_reading import follow, tail
from houston_daemon.service.logs import LOOK_SECONDS
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.lock import holder
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`-f`, `-n`, `--engine`, `--rollout`."""
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more")
    parser.add_argument("-n", "--lines", type=whole(), default=40, metavar="N", help="last N lines")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--engine", metavar="NAME", help="the log of this engine instead")
    which.add_argument("--rollout", metavar="R", help="the log of this rollout's worker instead")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print lines; with `-f` until Ctrl-C, over rotations."""
    if arguments.rollout:
        path = _worker(loaded, arguments.rollout)
    else:
        path = _engine(loaded, arguments.engine) if arguments.engine else _own(loaded)
    try:
        lines, end = tail(path, arguments.lines)
    except OSError as problem:
        raise _closed(path, problem) from None
    for line in lines:
        out.line(line)
    if arguments.follow:
        for line in follow(path, end):
            out.line(line)
            out.flush()
    return int(ExitCode.DONE)


def _own(loaded: Loaded) -> Path:
    path = loaded.home.logs / "daemon.log"
    if _there(path):
        return path
    if holder(loaded.home):
        raise HoustonError(
            f"The log {path} was removed while the daemon runs.",
            f"It begins a new one within {LOOK_SECONDS:g} s.",
            "houston daemon logs",
        )
    raise HoustonError(f"There is no log {path}.", next="houston daemon start")


def _there(path: Path) -> bool:
    """Whether there is such a log; raises HoustonError where this user may not look."""
    try:
        return path.exists()
    except OSError as problem:
        raise _closed(path, problem) from None


def _closed(path: Path, problem: OSError) -> HoustonError:
    """Logs are the owner's: they quote agents and hold paths, and roles do not reach files."""
    mine = isinstance(problem, PermissionError)
    return HoustonError(
        f"The log {path} cannot be read: {problem.strerror}.",
        next="Ask the user whose daemon it is; `houston log --audit` shows what people did."
        if mine
        else "",
    )


def _engine(loaded: Loaded, name: str) -> Path:
    path = engine_log(loaded.home, name)
    if not _there(path):
        there = sorted(file.stem for file in path.parent.glob("*.log"))
        raise HoustonError(
            f"There is no log of an engine {name!r}; there are: {', '.join(there) or 'none'}.",
            next="houston daemon status",
        )
    return path


def _worker(loaded: Loaded, name: str) -> Path:
    from houston_daemon.service.process import worker_log  # the others do not pay for it

    with Reader(loaded.home) as reader:
        rollout = reader.run(rollouts.rollout(name)).id
    path = worker_log(loaded.home, rollout)
    if not _there(path):
        raise HoustonError(
            f"The worker of {rollout} has written nothing.", next=f"houston rollout show {rollout}"
        )
    return path
