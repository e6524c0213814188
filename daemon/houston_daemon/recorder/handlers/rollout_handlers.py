"""What operators do to rollouts and the daemon: start, pause, resume, cancel, clean, stop.

A start queues rollouts with specs free of secrets; the same request key gives the same ids.
Cleaning accepts orders to free what ended rollouts keep on hosts; a separate process carries them
out (`maintenance.host_cleanup`). `branch_handlers` starts branches.
"""

import secrets
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.hosts.host_protocol import CleanupExtent
from houston_daemon.hosts.ssh.remote_part import remote_part_of
from houston_daemon.maintenance.host_cleanup import CleanupOrder, CleanupReport
from houston_daemon.recorder import journal_writer, rollout_assignment
from houston_daemon.recorder.handlers import policy_handlers
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_handle import RunnableChanged, StopRequested
from houston_daemon.recorder.recorder_store import CleanupRequest, RolloutRow, Store
from houston_daemon.recorder.request_checks import (
    UNCHANGED,
    denial,
    find_events_since,
    require_rollout,
)
from houston_daemon.recorder.rollout_states import (
    PAUSED_BY_ENGINE,
    PAUSED_BY_HOST_AWAY,
    PAUSES_ENDED_BY_PEOPLE,
    SELF_ENDING_PAUSES,
    change_state,
    resume_rollout,
)
from houston_shared import task_secrets
from houston_shared.control_messages import CleanRollouts, StartRollouts
from houston_shared.errors import Damaged, UsageError
from houston_shared.faults import point
from houston_shared.records import AWAY_ACTIVITY, ENDED_STATES, Refinement, RolloutSpec, TaskRecord
from houston_shared.secret_redaction import redact, redact_all
from houston_shared.store import removed_data_queries, rollout_queries
from houston_shared.store.event_bodies import (
    CancelRequested,
    DaemonStopRequested,
    RolloutCleaned,
    StoredSpec,
)
from houston_shared.store.store_reader import read_blob
from houston_shared.task import Task, parse_task_record, purify_settings
from houston_shared.wire import RequestStored, Steer, StopDaemon

_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
SELECT_REQUESTED = "SELECT id, spec_seq FROM rollouts WHERE request = ? ORDER BY spec_seq"
"""Rollouts that were queued under a request's key."""
START_LIMIT = 1_000
"""Rollouts of one request."""
CRITIQUE_LIMIT = 4_000
"""Characters that a refinement may be told."""


def start_rollouts(store: Store, message: StartRollouts, author: Author) -> RequestStored:
    """Queue rollouts; the same request again gives the same ids."""
    if not 0 < len(message.request) <= 64 or not 0 < len(message.specs) <= START_LIMIT:
        raise UsageError(f"A start needs a request key and 1 to {START_LIMIT} rollouts.", UNCHANGED)
    earlier = store.connection.execute(SELECT_REQUESTED, (message.request,)).fetchall()
    if earlier:
        return RequestStored(seq=earlier[-1][1], rollouts=tuple(id for id, _ in earlier))
    ids = tuple(_queue_rollout(store, spec, message.request, author) for spec in message.specs)
    point("recorder.start.after")
    store.supervisor_events.append(RunnableChanged())
    return RequestStored(seq=store.journal.seq, rollouts=ids)


def _queue_rollout(store: Store, spec: RolloutSpec, request: str, author: Author) -> str:
    task = parse_task_record(spec.task)
    if task.name != spec.task.name:
        raise denial(f"The task file of {spec.task.name!r} is named {task.name!r}.")
    purify_settings(task, spec.purify)
    if spec.parent or spec.origin:
        raise denial("A branch is started from its parent.", "houston rollout branch R --at STEP")
    if spec.elsewhere:
        raise denial("What was sampled elsewhere is imported.", "houston rollout import FILE")
    if spec.refines is not None:
        _check_refined(store, spec.refines, task.name)
    spec = redact_spec(spec)
    spec = policy_handlers.choose_policies(store, spec)
    _check_task_keys(
        parse_task_record(spec.task)
    )  # as it will be read: a key written out is gone, too
    return store_spec(store, spec, request, task.mapped.kind, author)


def store_spec(store: Store, spec: RolloutSpec, request: str, sandbox: str, author: Author) -> str:
    """Store the task, where it is new, and the spec under a new id; returns that."""
    _store_task_definition(store, spec.task)
    return append_spec(store, spec, request, sandbox, author)


def append_spec(store: Store, spec: RolloutSpec, request: str, sandbox: str, author: Author) -> str:
    """Store the spec under a new id, of a task that is stored; returns that."""
    id = make_rollout_id(store, spec.task.name)
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    body = StoredSpec(
        **{**fields, "rollout": id},
        by=author.person_label,
        request=request,
        sandbox=sandbox,
        **author.event_fields,
    )
    store.journal.append(EventKey(id), "spec", journal_writer.prepare_body(store.home, body))
    return id


def _check_refined(store: Store, refines: Refinement, task: str) -> None:
    """Raise for an attempt that there is not, that goes on, or that is of another task."""
    row = store.read(rollout_queries.find_rollout(require_rollout(store, refines.rollout).id))
    if row.task != task:
        raise denial(f"{row.id} is a rollout of the task {row.task!r}, not of {task!r}.")
    if row.state not in ENDED_STATES:
        raise denial(
            f"{row.id} has not ended: the attempt to refine would still change.",
            f"houston rollout show {row.id}",
        )
    if not 0 < len(refines.text) <= CRITIQUE_LIMIT:
        raise UsageError(f"A critique has 1 to {CRITIQUE_LIMIT} characters.", UNCHANGED)


def _check_task_keys(task: Task) -> None:
    """A key that is not here would reach the agent's programs as its placeholder."""
    if missing := task_secrets.missing_secrets(task):
        raise denial(*task_secrets.describe_missing_secret(*missing[0]))


def redact_spec(spec: RolloutSpec) -> RolloutSpec:
    """The spec as it is stored: task and settings without secrets; paths stay as they are.

    The worker that reads it back finds keys where the daemon has them: in its environment.
    """
    task = msgspec.structs.replace(
        spec.task,
        definition=redact(spec.task.definition),
        instructions=redact(spec.task.instructions),
    )
    roles = {
        role: msgspec.structs.replace(own, engine_settings=_redact_engine(own.engine_settings))
        for role, own in spec.role_engines.items()
    }
    tools = {
        name: {**section, "url": redact_all(section["url"])} if "url" in section else section
        for name, section in spec.tool_settings.items()
    }
    refines = spec.refines and msgspec.structs.replace(spec.refines, text=redact(spec.refines.text))
    return msgspec.structs.replace(
        spec,
        task=task,
        refines=refines,
        engine_settings=_redact_engine(spec.engine_settings),
        tool_settings=tools,
        role_engines=roles,
    )


def _redact_engine(settings: dict[str, Any]) -> dict[str, Any]:
    secret = {"environment", "command", "url", "urls"} & settings.keys()
    return {**settings, **{key: redact_all(settings[key]) for key in secret}}


def _store_task_definition(store: Store, task: TaskRecord) -> None:
    """Store the definition once for as long as it stays the same."""
    row = store.connection.execute(
        "SELECT e.body, e.blob FROM tasks t JOIN events e ON e.seq = t.seq WHERE t.name = ?",
        (task.name,),
    ).fetchone()
    if row:
        data = read_blob(store.home, row[1]) if row[1] else row[0]
        if data is not None and msgspec.msgpack.decode(data, type=TaskRecord) == task:
            return
    store.journal.append(EventKey(), "task", journal_writer.prepare_body(store.home, task))


def make_rollout_id(store: Store, task: str) -> str:
    """An id that no rollout has: the task's name and four random letters."""
    while True:
        id = f"{task}-{''.join(secrets.choice(_ID_LETTERS) for _ in range(4))}"
        if store.read_rollout(id) is None:
            return id


def steer_rollout(store: Store, message: Steer, author: Author) -> RequestStored:
    """Pause, resume or cancel; asking for what already is changes nothing."""
    row = require_rollout(store, message.rollout)
    if message.action == "cancel":
        return RequestStored(seq=_cancel_rollout(store, row, author, message.reason))
    if row.state == "failed" and message.action == "resume":
        return RequestStored(seq=_requeue_failed_rollout(store, row, author, message.reason))
    if row.has_ended or row.cancelling:
        raise denial(
            f"{row.id} has ended ({row.state})."
            if row.has_ended
            else f"{row.id} is being cancelled by {row.cancelling}.",
            f"houston rollout show {row.id}",
        )
    if message.undoes:
        _check_undo(store, row, message.undoes, author)
    act = _pause_rollout if message.action == "pause" else _resume_rollout
    return RequestStored(seq=act(store, row, author, message.reason))


def _check_undo(store: Store, row: RolloutRow, seq: int, author: Author) -> None:
    """Refuse to take back what another has changed since, or has done: only one's own is undone."""
    newest = next(find_events_since(store, row.id, "state", seq - 1), None)
    is_own = newest is not None and (newest.body.by, newest.body.uid) == (
        author.person_label,
        author.uid,
    )
    if newest is None or newest.seq != seq or not is_own:
        by = f", by {newest.body.by.removeprefix('person:')}" if newest else ""
        raise denial(
            f"{row.id} is {row.state}{by}: that is not yours to take back.",
            f"houston rollout show {row.id}",
        )


def _pause_rollout(store: Store, row: RolloutRow, author: Author, reason: str) -> int:
    if row.state != "paused" or row.paused_by in SELF_ENDING_PAUSES:
        return change_state(store, row, "paused", author.person_label, reason, author=author)
    if row.paused_by.startswith("person:"):
        newest = next(find_events_since(store, row.id, "state", 0), None)
        return newest.seq if newest else store.journal.seq
    raise denial(f"{row.id} is already paused by {row.paused_by} ({row.reason}).")


def _resume_rollout(store: Store, row: RolloutRow, author: Author, reason: str) -> int:
    if row.state != "paused":
        return store.journal.seq
    refused = row.paused_by == PAUSED_BY_ENGINE and row.activity.startswith(AWAY_ACTIVITY)
    whose = row.paused_by in PAUSES_ENDED_BY_PEOPLE or row.paused_by.startswith("person:")
    if not whose and not refused:  # a worker that was refused asks again, whoever says so
        raise denial(
            f"{row.id} is paused by {row.paused_by} ({row.reason}), and resumes when that is over.",
            "houston doctor" if row.paused_by == PAUSED_BY_HOST_AWAY else "houston daemon status",
        )
    return resume_rollout(store, row, author.person_label, reason, author)


def refuse_sampled_elsewhere(spec: RolloutSpec | None, effect: str) -> None:
    """Raise for an imported rollout: nothing here could go on from it."""
    if spec is not None and spec.elsewhere is not None:
        raise denial(
            f"{spec.rollout} was sampled elsewhere ({spec.elsewhere.format}): it has no engine "
            "and no workspace here to continue with.",
            "Start its task here: houston rollout start TASK.toml",
            effect,
        )


def _requeue_failed_rollout(store: Store, row: RolloutRow, author: Author, reason: str) -> int:
    """Queue a failed rollout again. Raises HoustonError where it has nothing to go on from."""
    refuse_sampled_elsewhere(_read_spec(store, row), f"{row.id} stays failed.")
    if damage := rollout_assignment.find_resume_obstacle(store, row):
        _refuse_erased(store, row)
        raise denial(damage, "houston verify", f"{row.id} stays failed.")
    if (freed := store.read(removed_data_queries.find_last_cleaning(row.id))) is not None:
        raise denial(
            f"The files of {row.id} on its host were freed by {freed.body.by}.",
            f"houston rollout branch {row.id} --at STEP, or start its task again",
            f"{row.id} stays failed.",
        )
    return change_state(store, row, "queued", author.person_label, reason, author=author)


def _refuse_erased(store: Store, row: RolloutRow) -> None:
    """Raise HoustonError where what a rollout would go on from was archived or erased."""
    first = rollout_assignment.find_first_damaged_event(store, row)
    erased = store.connection.execute("SELECT erased FROM events WHERE seq = ?", (first,))
    if (erased.fetchone() or (0,))[0]:
        lost = store.read(removed_data_queries.find_missing_data(row.id))
        cause = lost.cause if lost else f"Texts of {row.id} were erased from the journal."
        start = (
            f"houston rollout branch {row.id} --at STEP, with an earlier step; or start "
            "its task again"
        )
        archived = (
            f"start its task again; what it did: {lost.command}" if lost and lost.command else ""
        )
        raise denial(cause, archived or start, f"{row.id} stays failed.")


def _cancel_rollout(store: Store, row: RolloutRow, author: Author, reason: str) -> int:
    """At once where no worker runs it; else the worker is told and ends it."""
    if row.state == "cancelled" or row.cancelling:
        return store.journal.seq
    if row.has_ended:
        raise denial(f"{row.id} has already ended ({row.state}).", f"houston rollout show {row.id}")
    if store.workers.get(row.id) is None:
        return change_state(store, row, "cancelled", author.person_label, reason, author=author)
    body = CancelRequested(by=author.person_label, reason=redact(reason), **author.event_fields)
    return store.journal.append(EventKey(row.id), "cancel", body)


def stop_daemon(store: Store, message: StopDaemon, author: Author) -> RequestStored:
    """Ask the supervisor to drain and end."""
    request = DaemonStopRequested(
        by=author.person_label, keep_engine=message.keep_engine, **author.event_fields
    )
    store.journal.append(EventKey(), "stop", request)
    store.supervisor_events.append(StopRequested(message.keep_engine))
    return RequestStored(seq=store.journal.seq)


CLEAN_LIMIT = 10_000
"""Rollouts of one message."""


def clean_rollouts(store: Store, message: CleanRollouts, author: Author) -> RequestStored:
    """Accept the orders of one message; all of its rollouts must have ended. Raises HoustonError.

    Returns the newest event before them: the results come as later events.
    """
    if not 0 < len(message.rollouts) <= CLEAN_LIMIT:
        raise UsageError(f"Name 1 to {CLEAN_LIMIT} rollouts.", UNCHANGED)
    before = store.journal.seq
    rollouts = dict.fromkeys(message.rollouts)
    requests = [
        CleanupRequest(_build_cleanup_order(store, rollout, message), author)
        for rollout in rollouts
    ]
    for request in requests:
        if not Path(request.order.root).is_absolute():  # it keeps nothing on a host
            store_cleanup_result(store, request, CleanupReport(request.order.rollout, 0))
    on_hosts = [request for request in requests if Path(request.order.root).is_absolute()]
    store.after_commit.append(lambda: store.cleanup_requests.extend(on_hosts))
    return RequestStored(seq=before)


def take_cleanup_batch(waiting: list[CleanupRequest]) -> dict[str, CleanupRequest]:
    """Take the batch of one process out of `waiting`: each rollout once, for whoever asked first.

    Others who asked for the same get their own answer: they may have asked for more.
    """
    batch: dict[str, CleanupRequest] = {}
    rest = [
        request
        for request in waiting
        if batch.setdefault(request.order.rollout, request) is not request
    ]
    waiting[:] = rest
    return batch


def store_cleanup_result(store: Store, request: CleanupRequest, report: CleanupReport) -> None:
    """Say in the journal what was freed, inside the open transaction."""
    body = RolloutCleaned(
        by=request.author.person_label,
        bytes=report.bytes,
        snapshots=request.order.extent == "snapshots" and not report.left,
        left=redact(report.left),
        **request.author.event_fields,
    )
    store.journal.append(EventKey(request.order.rollout), "cleaned", body)


def _build_cleanup_order(store: Store, rollout: str, message: CleanRollouts) -> CleanupOrder:
    row = require_rollout(store, rollout)
    if not row.has_ended or store.workers.get(row.id) is not None:
        state_text = f"has not ended ({row.state})" if not row.has_ended else "is just ending"
        raise denial(
            f"{row.id} {state_text}: it still uses the files to be freed.",
            f"houston rollout cancel {row.id} --wait",
            "Nothing was freed.",
        )
    waiting = store.connection.execute(
        "SELECT id FROM rollouts WHERE parent = ? AND steps = parent_step"
        " AND state IN ('queued', 'running', 'paused')",
        (row.id,),
    ).fetchone()
    if waiting:
        raise denial(
            f"The branch {waiting[0]} has yet to take its workspace from {row.id}.",
            f"houston rollout show {waiting[0]}",
            "Nothing was freed.",
        )
    spec = _read_spec(store, row)
    extent: CleanupExtent = "snapshots" if message.snapshots else "files"
    if spec is None:
        return CleanupOrder("", row.id, extent)
    elsewhere = tuple(remote_part_of(spec, host) for host in sorted(spec.hosts))
    return CleanupOrder(spec.host_root, row.id, extent, elsewhere)


def _read_spec(store: Store, row: RolloutRow) -> RolloutSpec | None:
    """What the rollout was started with: the hosts that it used, and their roots."""
    try:
        return store.read_record(row.spec_seq, RolloutSpec)
    except msgspec.MsgspecError:
        raise Damaged(
            f"Event {row.spec_seq} is damaged: where {row.id} keeps its files is not known.",
            "Nothing was freed.",
            "houston verify",
        ) from None
