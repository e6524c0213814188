"""What people do to rollouts and the daemon: start, pause, resume, cancel, stop.

Who may do it is decided at the door (`roles`): these are operators' messages. A task's evaluator
and an unsandboxed agent run as the user of the daemon.
"""

import secrets

import msgspec

from houston_daemon.recorder.disk import blobs
from houston_daemon.recorder.people import policies, said_before
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.people.say import rollout
from houston_daemon.recorder.protocol import StopAsked, Wanted
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps import rebuild, resumable, states
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Rollout, Store
from houston_shared import task_keys
from houston_shared.errors import ExitCode
from houston_shared.faults import point
from houston_shared.records import AWAY, RolloutSpec, TaskRecord
from houston_shared.secret_values import redact, redact_all
from houston_shared.store.blobs import read
from houston_shared.store.bodies import CancelAsked, StopAskedBy, StoredSpec
from houston_shared.store.queries import cleaned
from houston_shared.task import Task, parse_task
from houston_shared.wire import Done, Steer, StopDaemon
from houston_shared.wire_operators import StartRollouts

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
START_LIMIT = 1_000
"""Rollouts of one request."""


def start(store: Store, message: StartRollouts, author: Author) -> Done:
    """Queue rollouts; the same request again gives the same ids."""
    if not 0 < len(message.request) <= 64 or not 0 < len(message.specs) <= START_LIMIT:
        raise denial(
            f"A start needs a request key and 1 to {START_LIMIT} rollouts.", code=ExitCode.USAGE
        )
    before = store.connection.execute(
        "SELECT id, spec_seq FROM rollouts WHERE request = ? ORDER BY spec_seq", (message.request,)
    ).fetchall()
    if before:
        return Done(seq=before[-1][1], rollouts=tuple(id for id, _ in before))
    ids = tuple(_queue(store, spec, message.request, author) for spec in message.specs)
    point("recorder.start.after")
    store.tells.append(Wanted())
    return Done(seq=store.journal.seq, rollouts=ids)


def _queue(store: Store, spec: RolloutSpec, request: str, author: Author) -> str:
    task = parse_task(spec.task)
    if task.name != spec.task.name:
        raise denial(f"The task file of {spec.task.name!r} is named {task.name!r}.")
    if spec.parent or spec.origin:
        raise denial("A branch is started from its parent.", "houston rollout branch R --at STEP")
    spec = without_secrets(spec)
    spec = policies.chosen(store, spec)
    _refuse_unknown(parse_task(spec.task))  # as it will be read: a key written out is gone, too
    _remember_task(store, spec.task)
    id = free_id(store, task.name)
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    body = StoredSpec(
        **{**fields, "rollout": id},
        by=author.by,
        request=request,
        sandbox=task.mapped.kind,
        **author.fields,
    )
    store.journal.append(Key(id), "spec", blobs.stored(store.home, body))
    return id


def _refuse_unknown(task: Task) -> None:
    """A key that is not here would reach the agent's programs as its placeholder."""
    if missing := task_keys.missing(task):
        raise denial(*task_keys.words(*missing[0]))


def without_secrets(spec: RolloutSpec) -> RolloutSpec:
    """The spec as it is stored: task and settings without secrets; paths stay as they are.

    The worker that reads it back finds keys where the daemon has them: in its environment.
    """
    task = msgspec.structs.replace(
        spec.task,
        definition=redact(spec.task.definition),
        instructions=redact(spec.task.instructions),
    )
    settings = dict(spec.engine_settings)
    for key in ("environment", "command", "url"):
        if key in settings:
            settings[key] = redact_all(settings[key])
    tools = {
        name: {**section, "url": redact_all(section["url"])} if "url" in section else section
        for name, section in spec.tool_settings.items()
    }
    return msgspec.structs.replace(spec, task=task, engine_settings=settings, tool_settings=tools)


def _remember_task(store: Store, task: TaskRecord) -> None:
    """Store the definition once for as long as it stays the same."""
    known = store.connection.execute(
        "SELECT e.body, e.blob FROM tasks t JOIN events e ON e.seq = t.seq WHERE t.name = ?",
        (task.name,),
    ).fetchone()
    if known:
        data = read(store.home, known[1]) if known[1] else known[0]
        if data is not None and msgspec.msgpack.decode(data, type=TaskRecord) == task:
            return
    store.journal.append(Key(), "task", blobs.stored(store.home, task))


def free_id(store: Store, task: str) -> str:
    """An id that no rollout has: the task's name and four random letters."""
    while True:
        id = f"{task}-{''.join(secrets.choice(_BASE32) for _ in range(4))}"
        if store.rollout(id) is None:
            return id


def steer(store: Store, message: Steer, author: Author) -> Done:
    """Pause, resume or cancel; asking for what already is changes nothing."""
    row = rollout(store, message.rollout)
    if message.action == "cancel":
        return Done(seq=_cancel(store, row, author, message.reason))
    if row.state == "failed" and message.action == "resume":
        return Done(seq=_revive(store, row, author, message.reason))
    if states.ended(row) or row.cancelling:
        raise denial(
            f"{row.id} has ended ({row.state})."
            if states.ended(row)
            else f"{row.id} is being cancelled by {row.cancelling}.",
            f"houston rollout show {row.id}",
        )
    if message.undoes:
        _check_stands(store, row, message.undoes, author)
    act = _pause if message.action == "pause" else _resume
    return Done(seq=act(store, row, author, message.reason))


def _check_stands(store: Store, row: Rollout, seq: int, author: Author) -> None:
    """Refuse to take back what another has changed since, or has done: only one's own is undone."""
    newest = next(said_before.since(store, row.id, "state", seq - 1), None)
    mine = newest is not None and (newest.body.by, newest.body.uid) == (author.by, author.uid)
    if newest is None or newest.seq != seq or not mine:
        by = f", by {newest.body.by.removeprefix('person:')}" if newest else ""
        raise denial(
            f"{row.id} is {row.state}{by}: that is not yours to take back.",
            f"houston rollout show {row.id}",
        )


def _pause(store: Store, row: Rollout, author: Author, reason: str) -> int:
    if row.state != "paused" or row.paused_by in states.BY_ITSELF:
        return states.move(store, row, "paused", author.by, reason, author=author)
    if row.paused_by.startswith("person:"):
        stands = next(said_before.since(store, row.id, "state", 0), None)
        return stands.seq if stands else store.journal.seq
    raise denial(f"{row.id} is already paused by {row.paused_by} ({row.reason}).")


def _resume(store: Store, row: Rollout, author: Author, reason: str) -> int:
    if row.state != "paused":
        return store.journal.seq
    refused = row.paused_by == states.ENGINE and row.activity.startswith(AWAY)
    whose = row.paused_by in states.FOR_PEOPLE or row.paused_by.startswith("person:")
    if not whose and not refused:  # a worker that was refused asks again, whoever says so
        raise denial(
            f"{row.id} is paused by {row.paused_by} ({row.reason}), and goes on when that is over.",
            "houston doctor" if row.paused_by == states.HOST_AWAY else "houston daemon status",
        )
    return states.resume(store, row, author.by, reason, author)


def _revive(store: Store, row: Rollout, author: Author, reason: str) -> int:
    """Queue a failed rollout again. Raises HoustonError where it has nothing to go on from."""
    if damage := resumable.unsound(store, row):
        raise denial(damage, "houston verify", f"{row.id} stays failed.")
    if (freed := rebuild.run(store, cleaned.of(row.id))) is not None:
        raise denial(
            f"What {row.id} kept on its host was freed by {freed.body.by}.",
            f"houston rollout branch {row.id} --at STEP, or start it anew",
            f"{row.id} stays failed.",
        )
    return states.move(store, row, "queued", author.by, reason, author=author)


def _cancel(store: Store, row: Rollout, author: Author, reason: str) -> int:
    """At once where no worker runs it; else the worker is told and ends it."""
    if row.state == "cancelled" or row.cancelling:
        return store.journal.seq
    if states.ended(row):
        raise denial(f"{row.id} has already ended ({row.state}).", f"houston rollout show {row.id}")
    if store.workers.of(row.id) is None:
        return states.move(store, row, "cancelled", author.by, reason, author=author)
    body = CancelAsked(by=author.by, reason=redact(reason), **author.fields)
    return store.journal.append(Key(row.id), "cancel", body)


def stop(store: Store, message: StopDaemon, author: Author) -> Done:
    """Ask the supervisor to drain and end."""
    asked = StopAskedBy(by=author.by, keep_engine=message.keep_engine, **author.fields)
    store.journal.append(Key(), "stop", asked)
    store.tells.append(StopAsked(message.keep_engine))
    return Done(seq=store.journal.seq)
