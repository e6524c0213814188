"""`houston repair`: set damaged events aside, rebuild the rest, and name every loss."""

import argparse
import os
from pathlib import Path

from houston_daemon.recorder.upkeep.repair import Loss, Repaired, repair
from houston_shared import out
from houston_shared.clock import iso, now_us
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.lock import HomeLock, Owner


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--from-backup`, `--json`."""
    parser.add_argument(
        "--from-backup",
        metavar="NAME|DIR",
        type=Path,
        help="also take what fits from this backup (the home's own are always looked at), and what"
        " an earlier repair set aside",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Repair the home; raises HoustonError when its daemon runs, or when it cannot be done."""
    lock = held(loaded.home, "repaired")
    try:
        done = repair(loaded.home, arguments.from_backup)
    finally:
        lock.release()
    if arguments.json:
        out.json_line(done)
    else:
        _show(done)
    return int(ExitCode.DONE)


def held(home: Home, what: str) -> HomeLock:
    """The home's lock, taken; raises HoustonError (75) while a daemon holds it."""
    if not home.path.is_dir():
        raise HoustonError(f"There is no home {home.path}.", "Nothing was done.")
    lock = HomeLock(home)
    other = lock.take(Owner(os.getpid(), iso(now_us())), f"It was not {what}.")
    if other:
        raise HoustonError(
            f"A daemon (pid {other.pid}) runs on {home.path}.",
            f"It was not {what}.",
            "houston daemon stop",
            ExitCode.BUSY,
        )
    return lock


def _show(done: Repaired) -> None:
    for one in done.stays:
        out.note(f"{_which(one)} stay aside: {one.why}. They are kept in `damaged/`.")
    if not done.changed:
        out.line("Sound: there is nothing to repair.")
        return
    for rollout, seqs in done.returned.items():
        which = _which(Loss(rollout, seqs, ""))
        out.line(f"{which} came back: an earlier repair had set them aside.")
    for text in done.mended:
        out.line(text)
    for loss in done.losses:
        out.line(_said(loss))
    for rollout, step in done.paused.items():
        where = "no step of it is lost" if step < 0 else f"it goes on after step {step}"
        out.line(f"{rollout} is paused by repair; {where}. next: houston rollout resume {rollout}")
    if any(step >= 0 for step in done.paused.values()):
        out.note(
            "Workspaces were left as they are: they may be ahead of the step behind which"
            " their rollout goes on."
        )
    out.line(f"The home is sound again, to event {done.seq}.")
    out.note(f"The files as they were, and everything set aside: {done.copies}")


def _said(loss: Loss) -> str:
    return f"{_which(loss)} set aside: {loss.why}."


def _which(loss: Loss) -> str:
    first, last = loss.seqs[0], loss.seqs[-1]
    which = f"event {first}" if first == last else f"{len(loss.seqs)} events of {first} to {last}"
    return f"{loss.rollout or 'unknown rollout or daemon'}: {which}"
