"""What workers say: leases, duplicates, order, and storing; one handler a message.

A handler returns what to answer after the commit. It raises Refusal for what is not stored.
"""

from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from houston_daemon.recorder.refusal import Refusal
from houston_daemon.recorder.steps import guidance, rebuild, states
from houston_daemon.recorder.steps.checks import check, measured
from houston_daemon.recorder.steps.journal import Body, Key
from houston_daemon.recorder.steps.recent import Newest, advanced
from houston_daemon.recorder.store import Rollout, Store
from houston_shared.records import ENDED, TRANSITIONS, Delivered, Intent, Record
from houston_shared.store import blobs
from houston_shared.store.bodies import Clock, StoredObservation, StoredSample
from houston_shared.wire import (
    PROTOCOL,
    FromWorker,
    Heartbeat,
    Hello,
    IngestRequest,
    Moved,
    ReadSteps,
    Steps,
    StoreFork,
    StoreHead,
    StoreIntent,
    StoreObservation,
    StoreResult,
    StoreSample,
    Welcome,
    encode,
)

CLOCK_US = 30_000_000
"""A crash of the daemon forgets at most this much active time of a step that is still open."""
ACTIVITY_LIMIT = 200
"""Characters of what a worker says it does: an engine's error should be readable."""
LAST_CLOCK_US = 1_000_000
"""What a heartbeat before a stop may leave unsaid: workers beat every second."""


class Stored(NamedTuple):
    """What an ack will say, without the control state, which is read after the batch."""

    seq: int
    guidance: tuple[Delivered, ...] = ()
    duplicate: bool = False
    intent: Intent | None = None


class Slot(NamedTuple):
    """Where a worker's message is stored, and what."""

    key: Key
    kind: str
    record: Record
    """As it is stored: with the active time where it is kept."""
    words: Record
    """The worker's own words in it: what a duplicate is compared with."""


Answer = Stored | Welcome | Steps


def slot(message: IngestRequest) -> Slot | None:
    """Where a message belongs; None for messages that are not stored under a key."""
    one = message.rollout
    match message:
        case StoreHead(head=head):
            return Slot(Key(one, 0, 1, "head"), "head", head, head)
        case StoreSample(step=step, attempt=attempt, part=part, sample=sample):
            timed = StoredSample(**asdict(sample), active_us=message.active_us)
            return Slot(Key(one, step, attempt, part), "sample", timed, sample)
        case StoreIntent(step=step, attempt=attempt, index=index, intent=intent):
            return Slot(Key(one, step, attempt, f"intent.{index}"), "intent", intent, intent)
        case StoreResult(step=step, attempt=attempt, index=index, result=result):
            return Slot(Key(one, step, attempt, f"call.{index}"), "result", result, result)
        case StoreObservation(step=step, attempt=attempt, observation=seen):
            closing = StoredObservation(**asdict(seen), active_us=message.active_us)
            return Slot(Key(one, step, attempt, "observation"), "observation", closing, seen)
        case StoreFork(step=step, fork=fork):
            return Slot(Key(one, step, 1, "fork"), "fork", fork, fork)
    return None


def handle(
    store: Store, message: IngestRequest, place: Slot | None, body: Body | None, routing: bytes
) -> Answer:
    """Do what a worker's message asks, inside the open transaction.

    place, body: `slot(message)` and its body, ready to be stored. Raises Refusal.
    """
    newest = store.journal.recent.follows(message)
    if newest is not None and place is not None and body is not None:
        return _follow(store, message, newest, place, body, routing)
    row = store.rollout(message.rollout)
    if row is None:
        raise Refusal("UNKNOWN", f"There is no rollout {message.rollout[:80]!r}.")
    if isinstance(message, Hello) and message.protocol != PROTOCOL:
        raise Refusal(
            "PROTOCOL", f"The worker speaks protocol {message.protocol}, the daemon {PROTOCOL}."
        )
    _lease(store, row, message, routing)
    match message:
        case Hello():
            return rebuild.welcome(store, row)
        case ReadSteps(step=step):
            return rebuild.page(store, row, step)
        case Heartbeat():
            return _heartbeat(store, row, message)
        case Moved():
            return _moved(store, row, message)
    if place is None or body is None:
        raise Refusal("INVALID", f"{type(message).__name__} is not understood.")
    return _keep(store, row, message, place, body)


def _follow(
    store: Store, message: IngestRequest, newest: Newest, place: Slot, body: Body, routing: bytes
) -> Stored:
    """What `_keep` does, for a message of which everything to be checked is in memory."""
    intent = None
    if isinstance(message, StoreIntent):
        intent = message.intent
    elif isinstance(message, StoreResult):
        measured(message.result)
    store.workers.heard(message.rollout, message.lease, routing)
    seq = store.journal.append(place.key, place.kind, body)
    store.journal.recent.note(message.rollout, advanced(newest, message))
    return Stored(seq, intent=intent)


def _lease(store: Store, row: Rollout, message: FromWorker, routing: bytes) -> None:
    """Refuse any lease but the newest, and remember where its holder is."""
    if message.lease != row.lease or row.lease == 0:
        raise Refusal(
            "STALE_LEASE", f"Lease {message.lease} of {row.id} is not valid; {row.lease} is."
        )
    store.workers.heard(row.id, row.lease, routing)


def _keep(store: Store, row: Rollout, message: IngestRequest, place: Slot, body: Body) -> Stored:
    intent = message.intent if isinstance(message, StoreIntent) else None
    earlier = _stored_before(store, row, place)
    if earlier is not None:
        again: tuple[Delivered, ...] = ()
        if isinstance(message, StoreObservation):
            again = guidance.delivered(store, row.id, message.step)
        return Stored(earlier, again, duplicate=True, intent=intent)
    _alive(row)
    check(store, row, message)
    seq = store.journal.append(place.key, place.kind, body)
    if isinstance(message, StoreObservation) and not row.cancelling:  # nobody would hear it
        joined = guidance.deliver(store, row.id, message.step, message.attempt)
        return Stored(seq, joined)
    if isinstance(message, StoreSample) and message.part == "sample" and not row.cancelling:
        waits = guidance.waits(store, row.id)
        opened = Newest(row.lease, message.step, message.attempt, waits)
        store.journal.recent.note(row.id, opened)
    return Stored(seq, intent=intent)


def _stored_before(store: Store, row: Rollout, place: Slot) -> int | None:
    """Sequence of the same words under the same key; raises Refusal when the words differ."""
    found = store.connection.execute(
        "SELECT seq, body, blob FROM events WHERE rollout = ? AND step = ? AND attempt = ?"
        " AND part = ?",
        place.key,
    ).fetchone()
    if found is None:
        return None
    seq, inline, blob = found
    data = blobs.read(store.home, blob) if blob else inline
    if data is None:
        return int(seq)  # erased since: the words cannot be compared any more
    then = msgspec.msgpack.decode(data, type=type(place.words))
    if encode(then) != encode(place.words):
        _alive(row)  # whatever ended the rollout may have closed the step before its worker did
        raise Refusal(
            "SEQ_CONFLICT",
            f"{place.key.part} of step {place.key.step} of {place.key.rollout} is stored already"
            f" as event {seq} with other content.",
        )
    return int(seq)


def _heartbeat(store: Store, row: Rollout, message: Heartbeat) -> Stored:
    """Keeps what it does for people to see, and active time where a long step would lose it."""
    activity = message.activity[:ACTIVITY_LIMIT]
    if activity != row.activity and not states.ended(row):
        store.connection.execute(
            "UPDATE rollouts SET activity = ? WHERE id = ?", (activity, row.id)
        )
    store.workers.counted(row.id, message.active_us)
    least = LAST_CLOCK_US if store.draining else CLOCK_US
    if message.active_us - row.active_us >= least and not states.ended(row):
        store.journal.append(Key(row.id), "clock", Clock(active_us=message.active_us))
    return Stored(store.journal.seq)


def _moved(store: Store, row: Rollout, message: Moved) -> Stored:
    """A rollout ends, or waits for its engine or a machine and goes on."""
    waits = message.state == "paused" and row.state == "running"
    goes_on = message.state == "running" and row.paused_by == message.by in states.BY_ITSELF
    # A worker whose machine or engine is back does not know whose pause it is: another's stays.
    stays = row.state == "paused" and message.by in states.BY_ITSELF and not goes_on
    if row.state == message.state or (message.state == "running" and stays):
        return Stored(store.journal.seq, duplicate=True)
    _alive(row)
    if message.state not in ENDED and not waits and not goes_on:
        raise Refusal(
            "INVALID", f"A worker cannot move {row.id} from {row.state} to {message.state}."
        )
    by: str = message.by if waits or goes_on else "worker"
    if message.state == "cancelled" and row.cancelling:
        by = row.cancelling
    reason = message.reason or (row.reason if message.state == "cancelled" else "")
    if message.state not in TRANSITIONS[row.state]:
        raise Refusal("INVALID", f"{row.id} is {row.state} and cannot become {message.state}.")
    return Stored(states.move(store, row, message.state, by, reason, message.active_us))


def _alive(row: Rollout) -> None:
    if states.ended(row):
        raise Refusal("ENDED", f"{row.id} has ended: {row.state}.")
