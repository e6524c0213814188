"""`houston rollout start`, `rollout restore` and the log of a terminal on another machine.

`start` checks task, engine and machine, then queues rollouts with the daemon. `restore` writes a
workspace as it was after a step or when it was scored, from snapshots here or over SSH. The
terminal log (today `rollout printed`) copies what a terminal on another machine printed into a
file. Commands that follow and steer a running rollout are the console's; erasing and archiving is
`rollout_erasure_commands`.
"""

import argparse
import asyncio
import tarfile
import uuid
from pathlib import Path
from typing import IO, NamedTuple

from houston_daemon.hosts.host_protocol import HostAway
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from houston_daemon.hosts.ssh import remote_access
from houston_daemon.hosts.ssh.remote_part import RemotePart, remote_part_of
from houston_daemon.service import rollout_start_checks
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared import command_arguments, command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.control_client import ControlClient, send_with_retry
from houston_shared.control_messages import StartRollouts, Status
from houston_shared.errors import Busy, ExitCode, HoustonError, NotFound, UsageError
from houston_shared.safe_text import safe
from houston_shared.store import rollout_queries, step_queries, workspace_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.store_reader import Reader
from houston_shared.task import load_task, parse_task_record
from houston_shared.terminal_log_files import rollout_folder
from houston_shared.wire import AskStatus

ROLLOUTS_PER_START_LIMIT = 1_000
"""Most rollouts of one start; the recorder holds to it, too."""


def add_rollout_start_arguments(parser: argparse.ArgumentParser) -> None:
    """`TASK.toml`, `--engine`, `--policy`, `-n`, `--seed`, `--purify`, `--json`."""
    parser.add_argument("task", metavar="TASK.toml", help="task file, or the folder that holds it")
    parser.add_argument(
        "--engine", metavar="ENGINE", help="engine of the configuration, or script:FILE"
    )
    number = whole_number(1, ROLLOUTS_PER_START_LIMIT)
    parser.add_argument(
        "--policy",
        default="",
        metavar="POLICY",
        help="policy@2 that has been active on the engine, or `base` for its own model; "
        "default: the active one",
    )
    parser.add_argument("-n", type=number, default=1, metavar="N", help="how many rollouts (1)")
    parser.add_argument("--seed", type=whole_number(), help="seed of the first; default: random")
    parser.add_argument(
        "--share-gpus", action="store_true", help="share their GPUs with others that allow it"
    )
    parser.add_argument(
        "--hints", action="store_true", help="show them the task's hints, which are off by default"
    )
    parser.add_argument(
        "--purify",
        default="",
        metavar="on|off|KEY=VALUE,…",
        help="correct failed calls ahead: in all, in none, or with values other than the "
        "task's [purify]",
    )
    parser.add_argument("--json", action="store_true", help="one JSON line per rollout")


def run_rollout_start(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Queue the rollouts and print their ids."""
    task = load_task(Path(arguments.task))
    check_task_names(task)
    engine = arguments.engine or loaded.config.default_engine
    loaded.engine(engine)  # a wrong name is the first thing to say
    with ControlClient(loaded.home) as client:
        status = client.ask(AskStatus())
        running = status.engines if isinstance(status, Status) else {}
    rollout_start_checks.check_engines(loaded, task, engine, running)
    rollout_start_checks.check_policy(loaded, engine, arguments.policy)
    rollout_start_checks.check_machine(task)
    if arguments.hints and not task.task.hints.text:
        raise UsageError(
            f"{task.file} has no hints.", rollout_start_checks.NOTHING_STARTED, "Leave --hints out."
        )
    flags = (arguments.seed, arguments.share_gpus, arguments.hints)
    purify = rollout_start_checks.parse_purify_words(task.task, arguments.purify)
    specs = rollout_start_checks.build_rollout_specs(
        loaded, task, engine, arguments.n, *flags, policy=arguments.policy, purify=purify
    )
    message = StartRollouts(request=uuid.uuid4().hex, specs=specs)
    answer = send_with_retry(
        loaded.home, message, "They may have been queued.", "houston rollout list"
    )
    for rollout in answer.rollouts:
        if arguments.json:
            command_output.print_json_line(
                {"rollout": rollout, "task": task.task.name, "state": "queued"}
            )
        else:
            command_output.print_line(rollout)
    if not arguments.json and answer.rollouts:
        command_output.print_note(f"next: houston tail {answer.rollouts[0]} -f")
    return int(ExitCode.DONE)


NOTHING_RESTORED = "Nothing was restored."


class RestorableSnapshot(NamedTuple):
    """A snapshot, and what it is of."""

    rollout: str
    """The rollout whose step it is: the parent, where a branch shares it."""
    step: int
    commit: str
    host_root: str
    remote: RemotePart | None
    """The other machine that has it; None for this one."""
    score: float | None = None


def add_rollout_restore_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--at`, `--best`, `--final`, `--out`, `--json`."""
    parser.add_argument(
        "rollout", metavar="R", help="R@STEP; or R, and one of --at, --best and --final"
    )
    snapshot_choice = parser.add_mutually_exclusive_group()
    snapshot_choice.add_argument(
        "--at", type=whole_number(1), metavar="STEP", help="after this step, as R@STEP"
    )
    snapshot_choice.add_argument(
        "--best", action="store_true", help="as it was submitted with the best score"
    )
    snapshot_choice.add_argument("--final", action="store_true", help="as it was submitted last")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="new or empty folder that gets its files"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_rollout_restore(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write the folder; exit code 1 when something could not be brought back."""
    into = Path(arguments.out).absolute()
    _resolve_step(arguments)
    with Reader(loaded.home) as reader:
        snapshot = reader.run(_find_snapshot(arguments))
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(
            f"{into} exists and is not an empty folder.", NOTHING_RESTORED, "Name a new folder."
        )
    try:
        lost = _restore_files(snapshot, into, loaded.config.artifacts.url)
    except HostAway as host_problem:
        raise Busy(host_problem.cause, NOTHING_RESTORED, "houston doctor") from None
    except (OSError, tarfile.TarError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise HoustonError(f"{into} cannot be written: {reason}.", NOTHING_RESTORED) from None
    if arguments.json:
        score = {} if snapshot.score is None else {"score": snapshot.score}
        command_output.print_json_line(
            {"rollout": snapshot.rollout, "step": snapshot.step, **score}
            | {"into": str(into), "lost": lost}
        )
    else:
        scored = "" if snapshot.score is None else f", with score {snapshot.score:g}"
        command_output.print_line(
            f"{into}: the workspace of {snapshot.rollout} at step {snapshot.step}{scored}"
        )
    for path in lost:
        command_output.print_note(f"not brought back: {safe(path)}")
    return int(ExitCode.FAILED if lost else ExitCode.DONE)


def _resolve_step(arguments: argparse.Namespace) -> None:
    """R@STEP is R with --at STEP; raises HoustonError (2) unless one thing is named."""
    arguments.rollout, arguments.at = command_arguments.parse_step_reference(
        arguments.rollout, arguments.at
    )
    if bool(arguments.at) + arguments.best + arguments.final != 1:
        raise UsageError("Name a step (R@STEP), --best or --final.", NOTHING_RESTORED)


def _find_snapshot(arguments: argparse.Namespace) -> ReadPlan[RestorableSnapshot]:
    rollout = yield from rollout_queries.find_rollout(arguments.rollout)
    spec = yield from rollout_queries.read_rollout_spec(rollout)
    task = parse_task_record(spec.task)
    host = task.hosts[0] if arguments.at else task.evaluate.host or task.hosts[0]
    root, remote = spec.host_root, None if host == LOCAL_HOST else remote_part_of(spec, host)
    if arguments.at:
        return (yield from _snapshot_after(rollout.id, arguments.at, root, remote))
    scored = [
        evaluation
        for evaluation in (yield from workspace_queries.list_evaluations(rollout.id))
        if evaluation.score is not None
    ]
    if not scored:
        raise HoustonError(f"No submission of {rollout.id} has a score.", NOTHING_RESTORED)
    best = (
        max(scored, key=lambda evaluation: (evaluation.score, evaluation.number))
        if arguments.best
        else scored[-1]
    )
    if commit := (yield from workspace_queries.read_submitted_snapshot(best)):
        return RestorableSnapshot(best.rollout, best.step, commit, root, remote, best.score)
    snapshot = yield from _snapshot_after(best.rollout, best.step, root, remote)
    return snapshot._replace(score=best.score)


def _restore_files(snapshot: RestorableSnapshot, into: Path, store: str) -> list[str]:
    """The paths that are not in `into`. store: URL of one that may have snapshots that are not
    here. Raises HoustonError and OSError."""
    if snapshot.remote is not None:
        return asyncio.run(
            remote_access.restore_remote_workspace(
                snapshot.remote, snapshot.rollout, snapshot.commit, into
            )
        )
    root = Path(snapshot.host_root)
    folder = rollout_folder(root, snapshot.rollout)
    if store and not (folder / "shadow").is_dir():
        from houston_daemon.artifacts.missing_files import fetch_missing_shadow

        fetch_missing_shadow(store, root, snapshot.rollout, snapshot.commit)
    return restore_snapshot(folder / "shadow", snapshot.commit, into, folder / "workspace")


def _snapshot_after(
    rollout: str, step: int, root: str, remote: RemotePart | None
) -> ReadPlan[RestorableSnapshot]:
    rows = yield from step_queries.list_step_rows(rollout, step, step)
    if not rows or rows[0].observation_seq is None or not rows[0].snapshot:
        newest = yield from step_queries.find_last_step(rollout)
        if rows and not rows[0].snapshot and rows[0].observation_seq is not None:
            raise HoustonError(
                f"Step {step} of {rollout} has no snapshot: its environment keeps no files, or they"
                " could not be read then.",
                NOTHING_RESTORED,
                f"houston steps {rollout} --from {step} -n 1",
            )
        reason = "is not closed" if rows else "is not there"
        raise HoustonError(
            f"Step {step} of {rollout} {reason}; its newest step is {newest}.",
            NOTHING_RESTORED,
            f"houston steps {rollout}",
            ExitCode.FAILED if rows else ExitCode.NOT_FOUND,
        )
    return RestorableSnapshot(rows[0].rollout, step, rows[0].snapshot, root, remote)


NOTHING_READ = "Nothing was read."


def add_rollout_printed_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `TERMINAL`, `--host`, `--from`, `--to`, `--out`, `--json`."""
    parser.add_argument(
        "rollout", metavar="R", help="rollout: its id, or a unique beginning or ending of it"
    )
    parser.add_argument("terminal", metavar="TERMINAL", help="name of the terminal")
    parser.add_argument("--host", required=True, metavar="HOST", help="the machine it is on")
    parser.add_argument(
        "--from",
        dest="start",
        type=whole_number(0),
        default=0,
        metavar="BYTE",
        help="first byte (0)",
    )
    parser.add_argument(
        "--to",
        dest="end",
        type=whole_number(0),
        default=2**62,
        metavar="BYTE",
        help="up to this byte (the end)",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="a new file")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run_rollout_printed(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Write the file."""
    with Reader(loaded.home) as reader:
        rollout, place = reader.run(_find_terminal_host(arguments))
    into = Path(arguments.out)
    try:
        with into.open("xb") as file:
            try:
                asyncio.run(_copy_terminal_log(place, rollout, arguments, file))
            except BaseException:
                into.unlink()  # a part of it would pass for all, and be in the next try's way
                raise
    except OSError as problem:
        raise HoustonError(f"{into} cannot be written: {problem.strerror}.", NOTHING_READ) from None
    except HostAway as host_problem:
        raise Busy(host_problem.cause, NOTHING_READ, "houston doctor") from None
    if arguments.json:
        command_output.print_json_line(
            {"rollout": rollout, "terminal": arguments.terminal, "host": arguments.host}
            | {"file": str(into), "bytes": into.stat().st_size}
        )
    return int(ExitCode.DONE)


def _find_terminal_host(arguments: argparse.Namespace) -> ReadPlan[tuple[str, RemotePart]]:
    rollout = yield from rollout_queries.find_rollout(arguments.rollout)
    spec = yield from rollout_queries.read_rollout_spec(rollout)
    if arguments.host not in spec.hosts:
        names = ", ".join(sorted(spec.hosts)) or "none"
        raise NotFound(
            f"{rollout.id} has no terminals on {arguments.host!r}; its other machines: {names}.",
            NOTHING_READ,
        )
    return rollout.id, remote_part_of(spec, arguments.host)


async def _copy_terminal_log(
    place: RemotePart, rollout: str, arguments: argparse.Namespace, file: IO[bytes]
) -> None:
    parts = remote_access.read_remote_log(
        place, rollout, arguments.terminal, arguments.start, arguments.end
    )
    async for part in parts:
        await asyncio.to_thread(file.write, part)
