"""What operators say of training runs: start, how one stands that runs alone, cancel.

Processes are the supervisor's: it reads what is queued and being cancelled, and says what becomes
of it through `note`.
"""

from houston_daemon.recorder.disk import blobs
from houston_daemon.recorder.people import said_before
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.protocol import Wanted
from houston_daemon.recorder.refusal import UNCHANGED, denial
from houston_daemon.recorder.steps import rebuild
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_daemon.training.policies import families
from houston_shared import policy_names, wire
from houston_shared.errors import ExitCode
from houston_shared.secret_values import redact, redact_all
from houston_shared.store import bodies_training as bodies
from houston_shared.store.queries import policies, training_runs
from houston_shared.store.queries.training_runs import TrainingRun
from houston_shared.wire import Done

ENDED = ("finished", "failed", "cancelled")


def start(store: Store, message: wire.StartTraining, author: Author) -> Done:
    """Queue a run, or note one that runs alone; the same request again changes nothing.

    A run that failed or was cancelled may be asked for once more: it goes on from its checkpoint.
    """
    request = said_before.key(message.request)
    if not policy_names.is_run(message.run):
        raise denial(f"{message.run[:80]!r} cannot name a training run.", code=ExitCode.USAGE)
    policy_names.check_family(message.name)
    known = rebuild.run(store, training_runs.one(message.run))
    if known is not None:
        before = rebuild.run(store, training_runs.asked(known))
        if before is not None and before.request == request:
            return Done(seq=known.seq)
        if known.state not in ("failed", "cancelled"):
            cause = f"There is a training run {known.id} already ({known.state})."
            raise denial(cause, "houston train list")
    if not (policy_names.training_folder(store.home) / message.run).is_dir():
        raise denial(f"The home has no folder training/{message.run}.", "houston train sft --help")
    if message.parent and rebuild.run(store, policies.one(message.parent)) is None:
        raise denial(f"There is no policy {message.parent!r} to begin from.", "houston policy list")
    if message.base_hash:  # what would be refused after the last step
        every = rebuild.run(store, policies.every())
        lineage = (message.name, message.base, message.base_hash, message.parent)
        families.check(every, *lineage, UNCHANGED)
    body = bodies.TrainingAsked(
        by=author.by,
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
        **author.fields,
    )
    seq = store.journal.append(Key(), "training", blobs.stored(store.home, body))
    store.tells.append(Wanted())
    return Done(seq=seq)


def moved(store: Store, message: wire.TrainingMoved, author: Author) -> Done:
    """How a run stands that somebody runs alone; what it is already changes nothing."""
    run = _run(store, message.run)
    if not run.alone:
        raise denial(f"{run.id} is a child of the daemon, which knows how it stands.")
    if run.state in ENDED or (run.state, run.reason) == (message.state, message.reason):
        return Done(seq=store.journal.seq)
    body = bodies.TrainingMoved(
        by=author.by,
        run=run.id,
        state="finished" if message.state == "cancelled" and run.policy else message.state,
        reason=redact(message.reason),
        start=message.state == "running",
        **author.fields,
    )
    return Done(seq=store.journal.append(Key(), "training-moved", body))


def cancel(store: Store, message: wire.CancelTraining, author: Author) -> Done:
    """At once where it has no process yet; else the supervisor ends that first."""
    run = _run(store, message.run)
    if run.state == "cancelled" or run.cancelling:
        return Done(seq=store.journal.seq)
    if run.state in ENDED:
        raise denial(f"{run.id} has already ended ({run.state}).", f"houston train show {run.id}")
    if run.alone:
        raise denial(f"{run.id} runs beside the daemon: end it where it was started.")
    reason = redact(message.reason)
    if run.state == "queued":
        body = bodies.TrainingMoved(
            by=author.by, run=run.id, state="cancelled", reason=reason, **author.fields
        )
        return Done(seq=store.journal.append(Key(), "training-moved", body))
    asked = bodies.TrainingCancelled(by=author.by, run=run.id, reason=reason, **author.fields)
    store.tells.append(Wanted())
    return Done(seq=store.journal.append(Key(), "training-cancel", asked))


def note(store: Store, run: str, state: bodies.RunState, reason: str, start: bool) -> None:
    """What the supervisor says of a run; nothing of one that has ended.

    A run that became a policy has finished, whoever wanted it ended by then.
    """
    known = rebuild.run(store, training_runs.one(run))
    if known is None or known.state in ENDED:
        return
    if state == "cancelled" and known.policy:
        state, reason = "finished", ""
    if not start and (known.state, known.reason) == (state, reason):
        return
    by = (known.cancelling if state == "cancelled" else "") or "daemon"
    body = bodies.TrainingMoved(by=by, run=run, state=state, reason=redact(reason), start=start)
    store.journal.append(Key(), "training-moved", body)


def _run(store: Store, id: str) -> TrainingRun:
    found = rebuild.run(store, training_runs.one(id))
    if found is None:
        raise denial(f"There is no training run {id[:80]!r}.", "houston train list")
    return found
