"""Requests of operators and the supervisor about training runs: start, update and cancel one.

The supervisor manages the processes of runs; policies are in `policy_handlers`.
"""

from houston_daemon.recorder import journal_writer
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_handle import RunnableChanged
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import UNCHANGED, check_request_key, denial
from houston_daemon.training.policies import policy_constraints
from houston_shared import wire
from houston_shared.errors import NotFound, UsageError
from houston_shared.policy_and_run_files import (
    check_family_name,
    is_run_name,
    training_folder,
)
from houston_shared.secret_redaction import redact, redact_all
from houston_shared.store import policy_queries
from houston_shared.store import training_event_bodies as bodies
from houston_shared.store.policy_queries import TrainingRunRow
from houston_shared.store.training_event_bodies import ENDED_RUN_STATES
from houston_shared.wire import RequestStored


def start_training_run(store: Store, message: wire.StartTraining, author: Author) -> RequestStored:
    """Queue a run, or note one that runs alone; the same request again changes nothing.

    A run that failed or was cancelled may be asked for once more: it goes on from its checkpoint.
    """
    request = check_request_key(message.request)
    if not is_run_name(message.run):
        raise UsageError(f"{message.run[:80]!r} is not a valid name for a training run.", UNCHANGED)
    check_family_name(message.name)
    run_row = store.read(policy_queries.find_training_run(message.run))
    if run_row is not None:
        before = store.read(policy_queries.read_training_request(run_row))
        if before is not None and before.request == request:
            return RequestStored(seq=run_row.seq)
        if run_row.state not in ("failed", "cancelled"):
            cause = f"A training run {run_row.id} already exists ({run_row.state})."
            raise denial(cause, "houston train list")
    _check_training_request(store, message)
    body = bodies.TrainingQueued(
        by=author.person_label,
        request=request,
        run=message.run,
        kind=message.kind,
        alone=message.alone,
        name=message.name,
        parent=message.parent,
        base=message.base,
        rollouts=message.rollouts,
        manifest=message.manifest,
        recipe=redact_all(message.recipe),
        gpus=message.gpus,
        share_gpus=message.share_gpus,
        **author.event_fields,
    )
    seq = store.journal.append(
        EventKey(), "training", journal_writer.prepare_body(store.home, body)
    )
    store.supervisor_events.append(RunnableChanged())
    return RequestStored(seq=seq)


def _check_training_request(store: Store, message: wire.StartTraining) -> None:
    """Refuse what has no folder, no parent, or would be refused as a policy after the last step."""
    if not (training_folder(store.home) / message.run).is_dir():
        raise denial(f"The home has no folder training/{message.run}.", "houston train sft --help")
    if message.parent and store.read(policy_queries.find_policy(message.parent)) is None:
        raise NotFound(
            f"There is no policy {message.parent!r} to start from.",
            UNCHANGED,
            "houston policy list",
        )
    if message.base_hash:
        every = store.read(policy_queries.list_policies())
        lineage = (message.name, message.base, message.base_hash, message.parent)
        policy_constraints.check_family_lineage(
            every, *lineage, UNCHANGED, scores=message.kind == "prm"
        )


def update_standalone_run(
    store: Store, message: wire.ReportTrainingState, author: Author
) -> RequestStored:
    """Store the state of a run outside the daemon; an unchanged state stores nothing."""
    run = _require_run(store, message.run)
    if not run.alone:
        raise denial(f"{run.id} is a child of the daemon, which tracks its state itself.")
    if run.state in ENDED_RUN_STATES or (run.state, run.reason) == (message.state, message.reason):
        return RequestStored(seq=store.journal.seq)
    body = bodies.TrainingStateChanged(
        by=author.person_label,
        run=run.id,
        state="finished" if message.state == "cancelled" and run.policy else message.state,
        reason=redact(message.reason),
        start=message.state == "running",
        **author.event_fields,
    )
    return RequestStored(seq=store.journal.append(EventKey(), "training-moved", body))


def cancel_training_run(
    store: Store, message: wire.CancelTraining, author: Author
) -> RequestStored:
    """Cancel a run: at once if it has no process; else the supervisor ends that first."""
    run = _require_run(store, message.run)
    if run.state == "cancelled" or run.cancelling:
        return RequestStored(seq=store.journal.seq)
    if run.state in ENDED_RUN_STATES:
        raise denial(f"{run.id} has already ended ({run.state}).", f"houston train show {run.id}")
    if run.alone:
        raise denial(f"{run.id} runs outside the daemon: end it where it was started.")
    reason = redact(message.reason)
    if run.state == "queued":
        body = bodies.TrainingStateChanged(
            by=author.person_label,
            run=run.id,
            state="cancelled",
            reason=reason,
            **author.event_fields,
        )
        moved = store.journal.append(EventKey(), "training-moved", body)
        _put_back_policies(store, run.id)
        return RequestStored(seq=moved)
    request = bodies.TrainingCancelRequested(
        by=author.person_label, run=run.id, reason=reason, **author.event_fields
    )
    store.supervisor_events.append(RunnableChanged())
    return RequestStored(seq=store.journal.append(EventKey(), "training-cancel", request))


def store_run_state(
    store: Store, run: str, state: bodies.RunState, reason: str, start: bool
) -> None:
    """Store the supervisor's report on a run; ignored for a run that has ended.

    A run that became a policy is finished, even if somebody has cancelled it by then.
    """
    run_row = store.read(policy_queries.find_training_run(run))
    if run_row is None or run_row.state in ENDED_RUN_STATES:
        return
    if state == "cancelled" and run_row.policy:
        state, reason = "finished", ""
    if not start and (run_row.state, run_row.reason) == (state, reason):
        return
    by = (run_row.cancelling if state == "cancelled" else "") or "daemon"
    body = bodies.TrainingStateChanged(
        by=by, run=run, state=state, reason=redact(reason), start=start
    )
    store.journal.append(EventKey(), "training-moved", body)
    if state in ("cancelled", "failed"):
        _put_back_policies(store, run)


def _put_back_policies(store: Store, run: str) -> None:
    """Ask for what engines had before a run that came to nothing gave them its versions; what
    somebody else chose meanwhile stays. A run that goes on gives its version again."""
    for engine, policy in store.read(policy_queries.find_policies_before_run(run)).items():
        body = bodies.ActivationRequested(
            by="daemon", request=f"{run}/end/{store.journal.seq}", engine=engine, policy=policy
        )
        store.journal.append(EventKey(), "activation", body)
        store.supervisor_events.append(RunnableChanged())


def _require_run(store: Store, id: str) -> TrainingRunRow:
    run = store.read(policy_queries.find_training_run(id))
    if run is None:
        raise NotFound(f"There is no training run {id[:80]!r}.", UNCHANGED, "houston train list")
    return run
