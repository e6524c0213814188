"""`houston daemon stop`: drains and ends the daemon, and its engines; it always ends."""

import argparse

from houston_daemon.service.halt import Halted, halt
from houston_daemon.service.systemd import comes_again
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--keep-engine`."""
    text = "let engines run on, for at most [daemon] engine_orphan_seconds"
    parser.add_argument("--keep-engine", action="store_true", help=text)
    # What the unit calls after the daemon's end (ExecStopPost).
    parser.add_argument("--service-ended", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Stop it; exit code 0 also when none runs."""
    if arguments.service_ended and comes_again():
        out.line("engines run on: the daemon is started again")
        return int(ExitCode.DONE)
    say(halt(loaded, keep_engine=arguments.keep_engine), loaded)
    return int(ExitCode.DONE)


def say(halted: Halted, loaded: Loaded) -> None:
    """One line about what was ended."""
    if not halted.pid:
        out.line(f"no daemon runs on {loaded.home.path}")
    elif halted.forced:
        out.line(f"killed (pid {halted.pid}): {halted.forced}; nothing that was stored is lost")
    elif halted.stood:
        out.line(
            f"stopped (pid {halted.pid}): a signal had frozen it, it was let go on and drained"
        )
    else:
        out.line(f"stopped (pid {halted.pid})")
    for engine in halted.engines:
        out.line(f"ended engine {engine}, which an earlier daemon had left")
