"""`houston rollout restore R --into DIR`: a workspace as it was after a step, or when scored.

It reads snapshots where they are, here or on another machine, and changes nothing of the rollout,
which may run.
"""

import argparse
import asyncio
import tarfile
from pathlib import Path
from typing import NamedTuple

from houston_daemon.hosts.errors import HostAway
from houston_daemon.hosts.snapshots.reading import bring_back
from houston_daemon.hosts.ssh import visit
from houston_daemon.hosts.ssh.there import There, there
from houston_shared import out, permalink
from houston_shared.config import Loaded
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.safe_text import safe
from houston_shared.store.plan import Plan
from houston_shared.store.queries import rollouts, steps, world
from houston_shared.store.reader import Reader
from houston_shared.task import parse_task
from houston_shared.terminal_folder import rollout_folder

NOTHING = "Nothing was restored."


class Found(NamedTuple):
    """A snapshot, and what it is of."""

    rollout: str
    """The rollout whose step it is: the parent, where a branch shares it."""
    step: int
    commit: str
    host_root: str
    there: There | None
    """The other machine that has it; None for this one."""
    score: float | None = None


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--at`, `--best`, `--final`, `--into`, `--json`."""
    parser.add_argument("rollout", metavar="R", help="rollout; or R@STEP, as it was after a step")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--at", type=whole(1), metavar="STEP", help="as it was after this step")
    which.add_argument(
        "--best", action="store_true", help="as it was submitted with the best score"
    )
    which.add_argument("--final", action="store_true", help="as it was submitted last")
    parser.add_argument("--into", required=True, metavar="DIR", help="new or empty folder")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Write the folder; exit code 1 when something could not be brought back."""
    into = Path(arguments.into).absolute()
    _name(arguments)
    with Reader(loaded.home) as reader:
        found = reader.run(_found(arguments))
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise HoustonError(
            f"{into} is there and is no empty folder.",
            NOTHING,
            "Name a new folder.",
            ExitCode.USAGE,
        )
    try:
        lost = _brought_back(found, into)
    except HostAway as away:
        raise HoustonError(away.cause, NOTHING, "houston doctor", ExitCode.BUSY) from None
    except (OSError, tarfile.TarError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise HoustonError(f"{into} cannot be written: {why}.", NOTHING) from None
    if arguments.json:
        score = {} if found.score is None else {"score": found.score}
        out.json_line(
            {"rollout": found.rollout, "step": found.step, **score, "into": str(into), "lost": lost}
        )
    else:
        scored = "" if found.score is None else f", with score {found.score:g}"
        out.line(f"{into}: the workspace of {found.rollout} at step {found.step}{scored}")
    for path in lost:
        out.note(f"not brought back: {safe(path)}")
    return int(ExitCode.FAILED if lost else ExitCode.DONE)


def _name(arguments: argparse.Namespace) -> None:
    """R@STEP is R with --at STEP; raises HoustonError (2) unless one thing is named."""
    arguments.rollout, arguments.at = permalink.one(arguments.rollout, arguments.at)
    if bool(arguments.at) + arguments.best + arguments.final != 1:
        raise HoustonError("Name a step (R@STEP), --best or --final.", NOTHING, code=ExitCode.USAGE)


def _found(arguments: argparse.Namespace) -> Plan[Found]:
    one = yield from rollouts.rollout(arguments.rollout)
    spec = yield from rollouts.spec(one)
    task = parse_task(spec.task)
    name = task.hosts[0] if arguments.at else task.evaluate.host or task.hosts[0]
    root, place = spec.host_root, None if name == LOCAL else there(spec, name)
    if arguments.at:
        return (yield from _after(one.id, arguments.at, root, place))
    scored = [each for each in (yield from world.evaluations(one.id)) if each.score is not None]
    if not scored:
        raise HoustonError(f"No submission of {one.id} has a score.", NOTHING)
    best = max(scored, key=lambda each: (each.score, each.number)) if arguments.best else scored[-1]
    if commit := (yield from world.submitted(best)):
        return Found(best.rollout, best.step, commit, root, place, best.score)
    after = yield from _after(best.rollout, best.step, root, place)
    return after._replace(score=best.score)


def _brought_back(found: Found, into: Path) -> list[str]:
    """The paths that are not in `into`. Raises HoustonError and OSError."""
    if found.there is not None:
        return asyncio.run(visit.bring_back(found.there, found.rollout, found.commit, into))
    folder = rollout_folder(Path(found.host_root), found.rollout)
    return bring_back(folder / "shadow", found.commit, into, folder / "workspace")


def _after(rollout: str, step: int, root: str, place: There | None) -> Plan[Found]:
    rows = yield from steps.rows(rollout, step, step)
    if not rows or rows[0].observation_seq is None or not rows[0].snapshot:
        newest = yield from steps.last(rollout)
        if rows and not rows[0].snapshot and rows[0].observation_seq is not None:
            raise HoustonError(
                f"Step {step} of {rollout} has no snapshot: its environment keeps no files, or they"
                " could not be read then.",
                NOTHING,
                f"houston steps {rollout} --from {step} -n 1",
            )
        why = "is not closed" if rows else "is not there"
        raise HoustonError(
            f"Step {step} of {rollout} {why}; its newest step is {newest}.",
            NOTHING,
            f"houston steps {rollout}",
        )
    return Found(rows[0].rollout, step, rows[0].snapshot, root, place)
