"""`houston daemon start`: returns when the daemon is ready, or says why it is not."""

import argparse
import signal

from houston_daemon.service.launch import Launched, already, launch
from houston_daemon.service.role_checks import warning
from houston_daemon.service.systemd import own_unit
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--foreground`."""
    parser.add_argument(
        "--foreground",
        action="store_true",
        help="stay here and show the log; Ctrl-C drains and ends",
    )


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Start it; exit code 0 also when it runs already with the same configuration."""
    if arguments.foreground:
        return _foreground(loaded)
    say(launch(loaded), loaded)
    return int(ExitCode.DONE)


def say(launched: Launched, loaded: Loaded) -> None:
    """The daemon that now runs, and how the one before it ended where it died."""
    if launched.since:
        out.line(f"already running (pid {launched.pid}, since {launched.since})")
    else:
        out.line(f"running on {loaded.home.path} (pid {launched.pid})")
        if launched.before:
            out.line(f"  {launched.before}")
        if said := warning(loaded):
            out.note(f"warning: {said}")
    if loaded.home.run.parent != loaded.home.path:
        out.note(f"its sockets are in {loaded.home.run}: the home's path is too long for them")


def _foreground(loaded: Loaded) -> int:
    from houston_daemon.service.process import serve

    if running := already(loaded):
        say(running, loaded)
        return int(ExitCode.BUSY if own_unit() else ExitCode.DONE)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return serve(loaded, None, foreground=True)
