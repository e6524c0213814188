"""`houston rollout restore R --into DIR`: a workspace as it was after a step, or when scored.

It reads snapshots on this machine's host root and changes nothing of the rollout, which may run.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from houston_daemon.hosts.snapshots.reading import bring_back
from houston_shared import out
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
    score: float | None = None


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--at`, `--best`, `--final`, `--into`, `--json`."""
    parser.add_argument("rollout", metavar="R", help="rollout")
    which = parser.add_mutually_exclusive_group(required=True)
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
    with Reader(loaded.home) as reader:
        found = reader.run(_found(arguments))
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise HoustonError(
            f"{into} is there and is no empty folder.",
            NOTHING,
            "Name a new folder.",
            ExitCode.USAGE,
        )
    folder = rollout_folder(Path(found.host_root), found.rollout)
    try:
        lost = bring_back(folder / "shadow", found.commit, into, folder / "workspace")
    except OSError as problem:
        raise HoustonError(f"{into} cannot be written: {problem.strerror}.", NOTHING) from None
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


def _found(arguments: argparse.Namespace) -> Plan[Found]:
    one = yield from rollouts.rollout(arguments.rollout)
    spec = yield from rollouts.spec(one)
    task, root = parse_task(spec.task), spec.host_root
    place = task.hosts[0] if arguments.at else task.evaluate.host or task.hosts[0]
    if place != LOCAL:
        raise HoustonError(
            f"The snapshots of {one.id} are on the host {place}, not on this machine.",
            NOTHING,
            f"A branch gets its workspace there: houston rollout branch {one.id} --at STEP",
        )
    if arguments.at:
        return (yield from _after(one.id, arguments.at, root))
    scored = [each for each in (yield from world.evaluations(one.id)) if each.score is not None]
    if not scored:
        raise HoustonError(f"No submission of {one.id} has a score.", NOTHING)
    best = max(scored, key=lambda each: (each.score, each.number)) if arguments.best else scored[-1]
    if commit := (yield from world.submitted(best)):
        return Found(best.rollout, best.step, commit, root, best.score)
    after = yield from _after(best.rollout, best.step, root)
    return after._replace(score=best.score)


def _after(rollout: str, step: int, root: str) -> Plan[Found]:
    rows = yield from steps.rows(rollout, step, step)
    if not rows or rows[0].observation_seq is None or not rows[0].snapshot:
        newest = yield from steps.last(rollout)
        why = "has no snapshot" if rows else "is not there"
        raise HoustonError(
            f"Step {step} of {rollout} {why}; its newest step is {newest}.",
            NOTHING,
            f"houston steps {rollout}",
        )
    return Found(rows[0].rollout, step, rows[0].snapshot, root)
