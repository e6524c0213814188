"""`houston rollout pause|resume|cancel|branch|clean` and `houston claim`.

Each sends one small message to the daemon; `--wait` follows the journal until the rollout is in
the wanted state. The daemon does the work.
"""

import argparse
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

from houston_console.commands import command_options, daemon_requests
from houston_console.commands.daemon_requests import JournalFollower
from houston_console.commands.output_page import OutputPage, span
from houston_shared import command_arguments, command_output
from houston_shared.command_arguments import seconds_argument
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import (
    BranchRollout,
    CleanRollouts,
    new_guidance_id,
)
from houston_shared.errors import Busy, DaemonNotRunning, ExitCode, HoustonError, UsageError
from houston_shared.home_lock import find_running_daemon
from houston_shared.records import ENDED_STATES
from houston_shared.store import (
    json_views,
    policy_queries,
    removed_data_queries,
    rollout_queries,
)
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.removed_data_queries import HostCleaning
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import join_first, pluralize
from houston_shared.wire import Steer

SteerAction = Literal["pause", "resume", "cancel"]
STEER_WAIT_SECONDS = 60.0

STEER_REACHED: dict[str, Callable[[RolloutRow], bool]] = {
    "pause": lambda rollout: rollout_queries.is_at_rest(rollout) or rollout.state in ENDED_STATES,
    "resume": lambda rollout: rollout.state != "paused",
    "cancel": lambda rollout: rollout.state in ENDED_STATES,
}
"""What `--wait` waits for."""
STEER_TIMING = {
    "pause": "it stops after its current step",
    "resume": "it continues at once",
    "cancel": "it ends at its next safe point",
}
"""When what was asked for happens, where it has not yet."""


def add_steer_arguments(parser: argparse.ArgumentParser) -> None:
    """`R…` or what chooses them, `--reason`, `--wait`, `--as`, `--json`."""
    parser.add_argument(
        "rollouts",
        metavar="R",
        nargs="*",
        help="rollouts: ids, or unique beginnings or endings of them",
    )
    parser.add_argument("--task", default="", metavar="TASK", help="all of a task")
    parser.add_argument("--group", default="", metavar="G", help="all of a group")
    parser.add_argument("--run", default="", metavar="RUN", help="all that a training run started")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the journal")
    parser.add_argument(
        "--wait",
        nargs="?",
        type=seconds_argument,
        const=STEER_WAIT_SECONDS,
        metavar="SECONDS",
        help=f"wait until it is done, or fail (75) after SECONDS ({STEER_WAIT_SECONDS:g})",
    )
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON line per rollout, as `rollout show`")


def run_steer(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, action: SteerAction
) -> int:
    """Ask for all of them, and print the state of each. Where some are refused, that is reported
    and the others continue. Raises HoustonError (75) where some do not reach the state in time."""
    code, steered_names = ExitCode.DONE, []
    late_rollouts: list[RolloutRow] = []
    with Reader(loaded.home) as reader:
        names = _choose_rollouts(arguments, reader, action)
        for name in names:
            try:
                _ask_to_steer(arguments, loaded, name, action)
            except DaemonNotRunning:
                raise
            except HoustonError as problem:
                if len(names) == 1:
                    raise
                command_output.print_error(problem)
                code = problem.code
            else:
                steered_names.append(name)
        for now in _rollouts_after(arguments, loaded, reader, steered_names, action):
            is_late = arguments.wait is not None and not STEER_REACHED[action](now)
            if is_late:
                late_rollouts.append(now)
            if arguments.json:
                command_output.print_json_line(json_views.rollout_json(now))
            elif not is_late:
                command_output.print_line(_steer_answer(now, action))
    if late_rollouts:
        raise _late_error(late_rollouts, action, arguments.wait)
    return int(code)


def _late_error(late_rollouts: Sequence[RolloutRow], action: SteerAction, seconds: float) -> Busy:
    states = sorted({"working" if action == "pause" else row.state for row in late_rollouts})
    verb = "is" if len(late_rollouts) == 1 else "are"
    return Busy(
        f"{join_first([row.id for row in late_rollouts], 5)} {verb} still {' or '.join(states)}"
        f" after {seconds:g} s.",
        f"{action.capitalize()} was requested; {STEER_TIMING[action]}.",
        f"houston rollout show {late_rollouts[0].id}",
    )


def _choose_rollouts(
    arguments: argparse.Namespace, reader: Reader, action: SteerAction
) -> list[str]:
    """Whole ids of those that are named, or of those of a task, a group or a run for which there is
    something to do. Raises HoustonError."""
    task, group, run = arguments.task, arguments.group, arguments.run
    if sum(map(bool, (arguments.rollouts, task, group, run))) != 1:
        raise UsageError(
            "Name rollouts, or one of --task, --group and --run.",
            "Nothing was changed.",
            "houston rollout list",
        )
    if arguments.rollouts:
        named = [daemon_requests.resolve_rollout(reader, name).id for name in arguments.rollouts]
        return list(dict.fromkeys(named))
    rows = [
        row
        for row in reader.run(rollout_queries.list_rollouts(task))
        if group in ("", row.group_id)
    ]
    if run:
        from houston_console.commands.training_run_commands import resolve_training_run

        id = resolve_training_run(reader, run).id
        started = set(reader.run(policy_queries.list_unfinished_rollouts(id)))
        rows = [row for row in rows if row.id in started]
    reached = STEER_REACHED[action]
    chosen = [row.id for row in rows if row.state not in ENDED_STATES and not reached(row)]
    if not chosen:
        command_output.print_note(f"There is nothing to {action}.")
    failed = sum(row.state == "failed" for row in rows)
    if action == "resume" and failed:
        command_output.print_note(f"Left out: {pluralize(failed, 'failed rollout')}; name them.")
    return chosen


def _ask_to_steer(
    arguments: argparse.Namespace, loaded: LoadedConfiguration, name: str, action: SteerAction
) -> None:
    claimed = daemon_requests.claimed_name(arguments, loaded)
    message = Steer(rollout=name, action=action, reason=arguments.reason, claimed=claimed)
    daemon_requests.send_request(
        loaded, message, "It may have been heard.", f"houston rollout show {name}"
    )


def _rollouts_after(
    arguments: argparse.Namespace,
    loaded: LoadedConfiguration,
    reader: Reader,
    rollouts: Sequence[str],
    action: SteerAction,
) -> Iterator[RolloutRow]:
    """How each stands: now, or with `--wait` once that is reached, at the latest when all of them
    were given so long."""
    if arguments.wait is None:
        for name in rollouts:
            yield reader.run(rollout_queries.find_rollout(name))
        return
    end = time.monotonic() + arguments.wait
    with JournalFollower(loaded.home, reader) as following:
        for name in rollouts:
            now = following.read(partial(rollout_queries.find_rollout, name))
            while not STEER_REACHED[action](now):
                if not following.wait(max(0.0, end - time.monotonic())):
                    break
                now = following.read(partial(rollout_queries.find_rollout, name))
            yield now


def _steer_answer(now: RolloutRow, action: SteerAction) -> str:
    if STEER_REACHED[action](now):
        return f"{now.id} is {now.state}."
    return f"{now.id}: {action} was requested; {STEER_TIMING[action]}."


add_rollout_pause_arguments = add_steer_arguments
add_rollout_resume_arguments = add_steer_arguments
add_rollout_cancel_arguments = add_steer_arguments
run_rollout_pause = partial(run_steer, action="pause")
run_rollout_resume = partial(run_steer, action="resume")
run_rollout_cancel = partial(run_steer, action="cancel")


def add_rollout_branch_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--at`, `--guidance`, `--as`, `--json`."""
    command_options.add_place_argument(parser)
    parser.add_argument(
        "--at",
        type=command_options.positive_int,
        metavar="STEP",
        help="last step both share; or R@STEP",
    )
    parser.add_argument(
        "--guidance", metavar="TEXT", help="guidance for the branch's first observation"
    )
    command_options.add_speaker_option(parser)
    command_options.add_json_option(
        parser, "one JSON object: rollout, task, state, parent, guidance"
    )


def run_rollout_branch(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Queue it and print its id; the rollout itself goes on as it does."""
    message = _branch_message(arguments, loaded)
    answer = daemon_requests.send_request(
        loaded, message, "It may have been queued.", "houston rollout list"
    )
    (branch,) = answer.rollouts
    if arguments.json:
        with Reader(loaded.home) as reader:
            row = reader.run(rollout_queries.find_rollout(branch))
        line = {"rollout": branch, "task": row.task, "state": row.state}
        parent = {"rollout": row.parent, "step": row.parent_step}
        guidance = answer.guidance.id if answer.guidance else None
        command_output.print_json_line({**line, "parent": parent, "guidance": guidance})
    else:
        command_output.print_line(branch)
        command_output.print_note(f"next: houston tail {branch} -f")
    return int(ExitCode.DONE)


def _branch_message(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> BranchRollout:
    """What is asked for; raises HoustonError (2) where it names no step, or says nothing."""
    text = (arguments.guidance or "").strip("\n")
    if arguments.guidance is not None and not text.strip():
        raise UsageError("There is no text to say.", "No branch was started.")
    name, step = command_arguments.parse_step_reference(arguments.rollout, arguments.at)
    if not step:
        raise UsageError(
            "Name one step to branch at.", "No branch was started.", "houston rollout branch R@STEP"
        )
    reader = Reader(loaded.home)
    rollout = daemon_requests.resolve_rollout(reader, name)
    reader.close()
    return BranchRollout(
        request=uuid.uuid4().hex,
        rollout=rollout.id,
        step=step,
        id=new_guidance_id() if text else "",
        text=text,
        claimed=daemon_requests.claimed_name(arguments, loaded),
    )


CLEAN_WAIT_SECONDS = 600.0
"""How long this command waits; the daemon goes on."""
_DAEMON_POLL_SECONDS = 2.0
"""How often is looked whether the daemon is still there."""
KEPT_TEXT = (
    "The journal stays complete: steps, contexts, search. Files of 16 MB and more can be restored"
    " only where an evaluation kept a copy."
)


def add_rollout_clean_arguments(parser: argparse.ArgumentParser) -> None:
    """`R…`, `--ended-before`, `--snapshots`, `--as`, `--json`."""
    parser.add_argument("rollouts", metavar="R", nargs="*", help="rollouts, which must have ended")
    parser.add_argument(
        "--ended-before",
        type=command_options.parse_since_time,
        metavar="TIME",
        help="all that ended before this time (7d, 12h, 2026-11-20T09:00) and were not freed yet",
    )
    parser.add_argument(
        "--snapshots",
        action="store_true",
        help="also the snapshots: files of steps can then not be restored",
    )
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON line per rollout")


def run_rollout_clean(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Ask for it, wait until it is done, and say how much was freed."""
    if bool(arguments.rollouts) == (arguments.ended_before is not None):
        raise UsageError("Name rollouts, or a time with --ended-before.", "Nothing was freed.")
    with Reader(loaded.home) as reader:
        wanted_ids, freed = _select_rollouts(arguments, reader)
        for name in freed:
            command_output.print_note(f"{name} was freed before: nothing is left to free.")
        if not wanted_ids:
            command_output.print_note("There is nothing to free.")
            return int(ExitCode.DONE)
        message = CleanRollouts(
            rollouts=tuple(wanted_ids),
            snapshots=arguments.snapshots,
            claimed=daemon_requests.claimed_name(arguments, loaded),
        )
        look = f"houston rollout show {wanted_ids[0]}"
        seq = daemon_requests.send_request(loaded, message, "It may have been freed.", look).seq
        request = _CleanRequest(seq, arguments.snapshots)
        cleanings = _wait_for_cleanup(loaded, reader, wanted_ids, request)
    _print_cleanups(cleanings, arguments.json)
    is_whole = all(cleaning.whole for cleaning in cleanings.values())
    return int(ExitCode.DONE if is_whole else ExitCode.FAILED)


def _select_rollouts(arguments: argparse.Namespace, reader: Reader) -> tuple[list[str], list[str]]:
    """Rollouts to free, and those named that were freed before."""
    if arguments.ended_before is not None:
        named = reader.run(removed_data_queries.list_rollouts_ended_before(arguments.ended_before))
    else:
        rollouts = [
            daemon_requests.resolve_rollout(reader, name)
            for name in dict.fromkeys(arguments.rollouts)
        ]
        _refuse_running(rollouts)
        named = [rollout.id for rollout in rollouts]
    before = {
        id: reader.run(removed_data_queries.find_last_cleaning(id)) for id in dict.fromkeys(named)
    }
    freed = [
        id for id, last in before.items() if last and _is_clean_enough(last, arguments.snapshots)
    ]
    wanted_ids = [id for id in before if id not in freed]
    return wanted_ids, freed if arguments.rollouts else []


def _refuse_running(rollouts: Sequence[rollout_queries.RolloutRow]) -> None:
    """Said before anything is asked for; the daemon looks again."""
    for rollout in rollouts:
        if rollout.state not in ENDED_STATES:
            raise HoustonError(
                f"{rollout.id} has not ended ({rollout.state}): it works with what would be freed.",
                "Nothing was freed.",
                f"houston rollout cancel {rollout.id} --wait",
            )


def _is_clean_enough(last: HostCleaning, snapshots: bool) -> bool:
    return last.whole and (last.body.snapshots or not snapshots)


class _CleanRequest(NamedTuple):
    """What tells this command's own answer from one to somebody else who asked for less."""

    seq: int
    snapshots: bool


def _wait_for_cleanup(
    loaded: LoadedConfiguration, reader: Reader, wanted_ids: list[str], request: _CleanRequest
) -> dict[str, HostCleaning]:
    """What was freed of each; raises HoustonError (75 when it takes too long)."""
    cleanings: dict[str, HostCleaning] = {}
    end = time.monotonic() + CLEAN_WAIT_SECONDS
    with JournalFollower(loaded.home, reader) as following:
        while True:
            for rollout in wanted_ids:
                if rollout not in cleanings:
                    last = following.read(partial(_read_cleanup_answer, rollout, request))
                    cleanings |= {rollout: last} if last else {}
            if len(cleanings) == len(wanted_ids):
                return {rollout: cleanings[rollout] for rollout in wanted_ids}
            following.wait(_DAEMON_POLL_SECONDS)
            if find_running_daemon(loaded.home) is None:
                raise DaemonNotRunning(
                    "The daemon ended before it had said what was freed.",
                    "Some of it may be.",
                    "houston daemon start, then the same command again",
                )
            if time.monotonic() > end:
                raise Busy(
                    f"{len(wanted_ids) - len(cleanings)} rollouts are still being freed.",
                    "The daemon goes on.",
                    "houston log --audit",
                )


def _read_cleanup_answer(rollout: str, request: _CleanRequest) -> ReadPlan[HostCleaning | None]:
    last = yield from removed_data_queries.find_last_cleaning(rollout)
    if last is None or last.seq <= request.seq:
        return None
    return last if _is_clean_enough(last, request.snapshots) or not last.whole else None


def _print_cleanups(cleanings: dict[str, HostCleaning], json: bool) -> None:
    page = OutputPage()
    for rollout, cleaning in cleanings.items():
        if json:
            body = cleaning.body
            line = {"rollout": rollout, "bytes": body.bytes, "snapshots": body.snapshots}
            command_output.print_json_line({**line, "left": body.left})
        else:
            page.line(
                span(rollout, "name"), span(f": {removed_data_queries.describe_cleaning(cleaning)}")
            )
    if not json:
        total = sum(cleaning.body.bytes for cleaning in cleanings.values())
        command_output.print_note(f"{removed_data_queries.format_bytes(total)} in all. {KEPT_TEXT}")
