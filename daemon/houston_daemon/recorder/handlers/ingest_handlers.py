"""Messages of workers: leases, duplicates, order, and storing.

`find_event_slot` says where a message is stored; `handle_worker_message` does what it asks and
returns the content of the ack. The order of messages is checked before anything is written. Raises
`Refusal` for a message that is not stored. Large bodies are on disk already (`message_receiver`).
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from houston_daemon.recorder import guidance_delivery, rollout_reader
from houston_daemon.recorder.journal_writer import (
    STEP_NUMBER_LIMIT,
    EventBody,
    EventKey,
    NewestStep,
    advance_newest_step,
)
from houston_daemon.recorder.live_workers import WorkerRoute
from houston_daemon.recorder.recorder_store import RolloutRow, Store
from houston_daemon.recorder.request_checks import Refusal
from houston_daemon.recorder.rollout_states import SELF_ENDING_PAUSES, change_state
from houston_shared.records import (
    ENDED_STATES,
    PURIFICATION_KEY,
    STATE_TRANSITIONS,
    CallIntent,
    DeliveredGuidance,
    JobReport,
    Record,
    ToolResult,
)
from houston_shared.store import store_reader
from houston_shared.store.event_bodies import ActiveTimeStored, StoredObservation, StoredSample
from houston_shared.wire import (
    PROTOCOL,
    FromWorker,
    Heartbeat,
    Hello,
    IngestRequest,
    ReadSteps,
    Refused,
    Steps,
    StoreFork,
    StoreHead,
    StoreIntent,
    StoreJob,
    StoreObservation,
    StoreResult,
    StoreSample,
    StoreState,
    Welcome,
    encode_message,
)

_SAMPLE_PARTS = re.compile(
    r"(summary|judge|planner|executor|verifier|critic|lookahead)\.[1-9][0-9]{0,5}", re.ASCII
)
_EVALUATION_STATES = ("scored", "format", "failed")


def check_message_order(store: Store, row: RolloutRow, message: IngestRequest) -> None:
    """Refuse what cannot follow what is stored."""
    for name in ("step", "attempt"):
        if not 1 <= getattr(message, name, 1) < STEP_NUMBER_LIMIT:
            raise _invalid_message(f"{name} is {getattr(message, name)}; it begins with 1")
    match message:
        case StoreHead():
            if row.head_seq is not None:
                raise _invalid_message("the head is stored already")
        case StoreSample():
            _check_sample(store, row, message)
        case StoreIntent():
            _check_index(message.index)
            _check_step_open(store, row, message.step, message.attempt)
        case StoreResult():
            _check_result(store, row, message)
        case StoreObservation():
            _check_observation(store, row, message)
        case StoreFork():
            _check_fork(store, row, message)


def _check_sample(store: Store, row: RolloutRow, message: StoreSample) -> None:
    if message.sample.role == "lookahead":
        return _check_lookahead(store, row, message)
    if message.part != "sample":
        _check_side_sample(row, message)
        return
    newest = store.connection.execute(
        "SELECT max(attempt), max(iif(current, observation_seq, NULL)), max(current * guided)"
        " FROM steps WHERE rollout = ? AND step = ?",
        (row.id, message.step),
    ).fetchone()
    if newest[0] is None:
        if message.attempt != 1 or message.step != row.steps + 1:
            raise _invalid_message(
                f"a sample for step {message.step}, attempt {message.attempt};"
                f" step {row.steps + 1}, attempt 1 comes next"
            )
        return
    attempt, observation, guided = newest
    if message.attempt != attempt + 1:
        raise _invalid_message(f"attempt {message.attempt} of step {message.step} after {attempt}")
    if observation is not None:
        _check_replaceable(store, row, message.step, bool(guided))
    purified = PURIFICATION_KEY in message.sample.parameters
    if purified and guidance_delivery.has_queued_guidance(store, row.id):
        raise Refusal("GUIDED", f"Guidance waits: step {message.step} is not purified.")


def _check_lookahead(store: Store, row: RolloutRow, message: StoreSample) -> None:
    """A correction of a failed call, ahead of the end of its step: the next attempt of the open
    step, which does not count before a purified one takes it over."""
    _check_side_sample(row, message)
    number = int(message.part.partition(".")[2])
    attempts, is_open = store.connection.execute(
        "SELECT count(*), total(current AND observation_seq IS NULL) FROM steps"
        " WHERE rollout = ? AND step = ?",
        (row.id, message.step),
    ).fetchone()
    if not is_open or message.attempt != attempts + 1 or number != attempts:
        raise _invalid_message(
            f"{message.part} of step {message.step} as attempt {message.attempt}; the step has"
            f" {attempts} attempts"
        )


def _check_side_sample(row: RolloutRow, message: StoreSample) -> None:
    """A sample that opens no step: a summary, a judge's, …"""
    if not _SAMPLE_PARTS.fullmatch(message.part):
        raise _invalid_message(f"there is no part {message.part[:40]!r}")
    if message.part.partition(".")[0] != message.sample.role:
        raise _invalid_message(
            f"part {message.part!r} holds a sample of role {message.sample.role!r}"
        )
    if message.step > row.steps + 1:
        raise _invalid_message(f"step {message.step} is not reached; {row.steps + 1} comes next")


def _check_replaceable(store: Store, row: RolloutRow, step: int, guided: bool) -> None:
    """A closed step is taken again only while it is the last and carries no guidance."""
    if guided:
        raise _invalid_message(f"step {step} carries guidance and is not taken again")
    if step != row.steps or _current_attempt(store, row, step + 1) is not None:
        raise _invalid_message(f"step {step} is closed")
    branch = store.connection.execute(
        "SELECT id FROM rollouts WHERE parent = ? AND parent_step = ?", (row.id, step)
    ).fetchone()
    if branch:
        raise _invalid_message(
            f"step {step} is shared with the branch {branch[0]} and not taken again"
        )


def _current_attempt(store: Store, row: RolloutRow, step: int) -> int | None:
    """The current attempt of a step; None when nothing was sampled for it."""
    current: tuple[int] | None = store.connection.execute(
        "SELECT attempt FROM steps WHERE rollout = ? AND step = ? AND current", (row.id, step)
    ).fetchone()
    return current[0] if current else None


def _check_step_open(store: Store, row: RolloutRow, step: int, attempt: int) -> None:
    """The step must have a sample and no observation, and the attempt must be the current one, or
    the newest look-ahead of an open step."""
    step_row = store.connection.execute(
        "SELECT current, observation_seq, role FROM steps s JOIN samples ON seq = sample_seq"
        " WHERE s.rollout = ? AND s.step = ? AND s.attempt = ?",
        (row.id, step, attempt),
    ).fetchone()
    if step_row is None:
        raise _invalid_message(f"step {step}, attempt {attempt} has no sample")
    if step_row[1] is not None:
        raise _invalid_message(f"step {step}, attempt {attempt} is closed")
    if not step_row[0] and not _is_lookahead_open(store, row, step, attempt, step_row[2]):
        raise _invalid_message(f"attempt {attempt} of step {step} was replaced by a later one")


def _is_lookahead_open(store: Store, row: RolloutRow, step: int, attempt: int, role: str) -> bool:
    newest, is_open = store.connection.execute(
        "SELECT max(attempt), total(current AND observation_seq IS NULL) FROM steps"
        " WHERE rollout = ? AND step = ?",
        (row.id, step),
    ).fetchone()
    return role == "lookahead" and attempt == newest and bool(is_open)


def _check_result(store: Store, row: RolloutRow, message: StoreResult) -> None:
    _check_index(message.index)
    _check_step_open(store, row, message.step, message.attempt)
    intent_row = store.connection.execute(
        "SELECT 1 FROM events WHERE rollout = ? AND step = ? AND attempt = ? AND part = ?",
        (row.id, message.step, message.attempt, f"intent.{message.index}"),
    ).fetchone()
    if intent_row is None:
        raise _invalid_message(f"call {message.index} of step {message.step} has no intent")
    check_result_numbers(message.result)


def check_result_numbers(result: ToolResult) -> None:
    """Refuse numbers in a result that no table can hold."""
    if result.kind == "eval":
        _check_evaluation(result)
    total = result.fields.get("total_results", 0)
    if not isinstance(total, int):
        raise _invalid_message("total_results is no whole number")


def _check_evaluation(result: ToolResult) -> None:
    score = result.fields.get("overall_score")
    for name, value in (("overall_score", score), ("seconds", result.fields.get("seconds"))):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and math.isfinite(value)):
            raise _invalid_message(f"{name} of an evaluation is {value!r}, no number")
    if result.fields.get("state", "failed") not in _EVALUATION_STATES:
        raise _invalid_message(
            f"the state of an evaluation is none of {', '.join(_EVALUATION_STATES)}"
        )


def _check_observation(store: Store, row: RolloutRow, message: StoreObservation) -> None:
    _check_step_open(store, row, message.step, message.attempt)
    if message.attempt != _current_attempt(store, row, message.step):
        raise _invalid_message(f"attempt {message.attempt} of step {message.step} is a look-ahead")
    intents, results = store.connection.execute(
        "SELECT total(part GLOB 'intent.*'), total(part GLOB 'call.*') FROM events"
        " WHERE rollout = ? AND step = ? AND attempt = ? AND part IS NOT NULL",
        (row.id, message.step, message.attempt),
    ).fetchone()
    if intents != results:
        raise _invalid_message(
            f"step {message.step} has {intents:g} intents and {results:g} results"
        )


def _check_fork(store: Store, row: RolloutRow, message: StoreFork) -> None:
    fork = message.fork
    if message.step != row.steps + 1 or _current_attempt(store, row, message.step) is not None:
        raise _invalid_message(
            f"a fork before step {message.step}; step {row.steps + 1} comes next"
        )
    if fork.k < 1 or not row.first_step <= fork.first_kept_step <= message.step:
        raise _invalid_message(
            f"a fork with k {fork.k} that keeps steps from {fork.first_kept_step} on"
        )
    if len(guidance_delivery.read_guidance_by_ids(store, row.id, fork.guidance)) != len(
        fork.guidance
    ):
        raise _invalid_message("a fork names guidance that was not delivered to this rollout")


def _check_index(index: int) -> None:
    if not 0 <= index < STEP_NUMBER_LIMIT:
        raise _invalid_message(f"index is {index}; it begins with 0")


def _invalid_message(problem_text: str) -> Refusal:
    return Refusal("INVALID", f"This cannot be stored: {problem_text}.")


CLOCK_EVENT_US = 30_000_000
"""A crash of the daemon forgets at most this much active time of a step that is still open."""
JOB_TEXT_LIMIT = 1_000
"""Characters of one text of a job."""
ACTIVITY_LIMIT = 200
"""Characters of what a worker says it does: an engine's error should be readable."""
LAST_CLOCK_EVENT_US = 1_000_000
"""What a heartbeat before a stop may leave unsaid: workers beat every second."""


class AckContent(NamedTuple):
    """What an ack will say, without the control state, which is read after the batch."""

    seq: int
    guidance: tuple[DeliveredGuidance, ...] = ()
    duplicate: bool = False
    intent: CallIntent | None = None


class EventSlot(NamedTuple):
    """Where a worker's message is stored, and what."""

    key: EventKey
    kind: str
    record: Record
    """As it is stored: with the active time where it is kept."""
    worker_record: Record
    """The worker's own words in it: what a duplicate is compared with."""


WorkerAnswer = AckContent | Welcome | Steps
HeartbeatAnswer = AckContent | Refused


def find_event_slot(message: IngestRequest) -> EventSlot | None:
    """Where a message belongs; None for messages that are not stored under a key."""
    rollout = message.rollout
    match message:
        case StoreHead(head=head):
            return EventSlot(EventKey(rollout, 0, 1, "head"), "head", head, head)
        case StoreSample(step=step, attempt=attempt, part=part, sample=sample):
            timed = StoredSample(**asdict(sample), active_us=message.active_us)
            return EventSlot(EventKey(rollout, step, attempt, part), "sample", timed, sample)
        case StoreIntent(step=step, attempt=attempt, index=index, intent=intent):
            return EventSlot(
                EventKey(rollout, step, attempt, f"intent.{index}"), "intent", intent, intent
            )
        case StoreResult(step=step, attempt=attempt, index=index, result=result):
            return EventSlot(
                EventKey(rollout, step, attempt, f"call.{index}"), "result", result, result
            )
        case StoreObservation(step=step, attempt=attempt, observation=body):
            closing = StoredObservation(**asdict(body), active_us=message.active_us)
            return EventSlot(
                EventKey(rollout, step, attempt, "observation"), "observation", closing, body
            )
        case StoreFork(step=step, fork=fork):
            return EventSlot(EventKey(rollout, step, 1, "fork"), "fork", fork, fork)
    return None


def handle_worker_message(
    store: Store,
    message: IngestRequest,
    slot: EventSlot | None,
    body: EventBody | None,
    route: WorkerRoute,
) -> WorkerAnswer:
    """Do what a worker's message asks, inside the open transaction.

    slot, body: `find_event_slot(message)` and its body, ready to be stored. Raises Refusal.
    """
    newest = store.journal.newest_steps.find_followed_step(message)
    if newest is not None and slot is not None and body is not None:
        return _store_following(store, message, newest, slot, body, route)
    row = store.read_rollout(message.rollout)
    if row is None:
        raise _unknown_rollout(message)
    if isinstance(message, Hello) and message.protocol != PROTOCOL:
        raise Refusal(
            "PROTOCOL", f"The worker speaks protocol {message.protocol}, the daemon {PROTOCOL}."
        )
    _check_lease(store, row, message, route)
    match message:
        case Hello():
            return rollout_reader.build_welcome(store, row)
        case ReadSteps(step=step):
            return rollout_reader.read_steps_page(store, row, step)
        case Heartbeat():
            return _handle_heartbeat(store, row, message)
        case StoreState():
            return _handle_state_change(store, row, message)
        case StoreJob():
            return _store_job(store, row, message.job)
    if slot is None or body is None:
        raise Refusal("INVALID", f"{type(message).__name__} is not understood.")
    return _store_checked(store, row, message, slot, body)


def handle_heartbeats(
    store: Store, beats: Sequence[Heartbeat], route: WorkerRoute
) -> tuple[HeartbeatAnswer, ...]:
    """Do `handle_worker_message` for each of these; a refusal concerns one heartbeat only."""
    rows = store.read_rollouts([beat.rollout for beat in beats])
    answers: list[HeartbeatAnswer] = []
    for beat in beats:
        try:
            row = rows.get(beat.rollout)
            if row is None:
                raise _unknown_rollout(beat)
            _check_lease(store, row, beat, route)
            answers.append(_handle_heartbeat(store, row, beat))
        except Refusal as refusal:
            answers.append(Refused(code=refusal.code, reason=refusal.reason))
    return tuple(answers)


def _unknown_rollout(message: FromWorker) -> Refusal:
    return Refusal("UNKNOWN", f"There is no rollout {message.rollout[:80]!r}.")


def _store_following(
    store: Store,
    message: IngestRequest,
    newest: NewestStep,
    slot: EventSlot,
    body: EventBody,
    route: WorkerRoute,
) -> AckContent:
    """What `_store_checked` does, for a message of which everything to be checked is in memory."""
    intent = None
    if isinstance(message, StoreIntent):
        intent = message.intent
    elif isinstance(message, StoreResult):
        check_result_numbers(message.result)
    store.workers.note_message(message.rollout, message.lease, route)
    seq = store.journal.append(slot.key, slot.kind, body)
    store.journal.newest_steps.note(message.rollout, advance_newest_step(newest, message))
    return AckContent(seq, intent=intent)


def _check_lease(store: Store, row: RolloutRow, message: FromWorker, route: WorkerRoute) -> None:
    """Refuse any lease but the newest, and remember where its holder is."""
    if message.lease != row.lease or row.lease == 0:
        raise Refusal(
            "STALE_LEASE", f"Lease {message.lease} of {row.id} is not valid; {row.lease} is."
        )
    store.workers.note_message(row.id, row.lease, route)


def _store_checked(
    store: Store, row: RolloutRow, message: IngestRequest, slot: EventSlot, body: EventBody
) -> AckContent:
    intent = message.intent if isinstance(message, StoreIntent) else None
    earlier = _find_stored_before(store, row, slot)
    if earlier is not None:
        delivered: tuple[DeliveredGuidance, ...] = ()
        if isinstance(message, StoreObservation):
            delivered = guidance_delivery.read_delivered_guidance(store, row.id, message.step)
        return AckContent(earlier, delivered, duplicate=True, intent=intent)
    _check_not_ended(row)
    check_message_order(store, row, message)
    seq = store.journal.append(slot.key, slot.kind, body)
    if isinstance(message, StoreObservation) and not row.cancelling:  # nobody would hear it
        joined = guidance_delivery.deliver_guidance(store, row.id, message.step, message.attempt)
        return AckContent(seq, joined)
    if isinstance(message, StoreSample) and message.part == "sample" and not row.cancelling:
        waits = guidance_delivery.has_queued_guidance(store, row.id)
        opened = NewestStep(row.lease, message.step, message.attempt, waits)
        store.journal.newest_steps.note(row.id, opened)
    return AckContent(seq, intent=intent)


def _find_stored_before(store: Store, row: RolloutRow, slot: EventSlot) -> int | None:
    """Sequence of the same words under the same key; raises Refusal when the words differ."""
    stored = store.connection.execute(
        "SELECT seq, body, blob FROM events WHERE rollout = ? AND step = ? AND attempt = ?"
        " AND part = ?",
        slot.key,
    ).fetchone()
    if stored is None:
        return None
    seq, inline, blob = stored
    data = store_reader.read_blob(store.home, blob) if blob else inline
    if data is None:
        return int(seq)  # erased since: the words cannot be compared any more
    record = msgspec.msgpack.decode(data, type=type(slot.worker_record))
    if encode_message(record) != encode_message(slot.worker_record):
        _check_not_ended(
            row
        )  # whatever ended the rollout may have closed the step before its worker did
        raise Refusal(
            "SEQ_CONFLICT",
            f"{slot.key.part} of step {slot.key.step} of {slot.key.rollout} is stored already"
            f" as event {seq} with other content.",
        )
    return int(seq)


def _handle_heartbeat(store: Store, row: RolloutRow, message: Heartbeat) -> AckContent:
    """Keeps what it does for people to see, and active time where a long step would lose it."""
    activity = message.activity[:ACTIVITY_LIMIT]
    if activity != row.activity and not row.has_ended:
        store.connection.execute(
            "UPDATE rollouts SET activity = ? WHERE id = ?", (activity, row.id)
        )
    store.workers.note_heartbeat(message)
    least = LAST_CLOCK_EVENT_US if store.draining else CLOCK_EVENT_US
    if message.active_us - row.active_us >= least and not row.has_ended:
        store.journal.append(
            EventKey(row.id), "clock", ActiveTimeStored(active_us=message.active_us)
        )
    return AckContent(store.journal.seq)


def _handle_state_change(store: Store, row: RolloutRow, message: StoreState) -> AckContent:
    """A rollout ends, or waits for its engine or a machine and goes on."""
    waits = message.state == "paused" and row.state == "running"
    goes_on = message.state == "running" and row.paused_by == message.by in SELF_ENDING_PAUSES
    # A worker whose machine or engine is back does not know whose pause it is: another's stays.
    stays = row.state == "paused" and message.by in SELF_ENDING_PAUSES and not goes_on
    if row.state == message.state or (message.state == "running" and stays):
        return AckContent(store.journal.seq, duplicate=True)
    _check_not_ended(row)
    if message.state not in ENDED_STATES and not waits and not goes_on:
        raise Refusal(
            "INVALID", f"A worker cannot move {row.id} from {row.state} to {message.state}."
        )
    by: str = message.by if waits or goes_on else "worker"
    if message.state == "cancelled" and row.cancelling:
        by = row.cancelling
    reason = message.reason or (row.reason if message.state == "cancelled" else "")
    if message.state not in STATE_TRANSITIONS[row.state]:
        raise Refusal("INVALID", f"{row.id} is {row.state} and cannot become {message.state}.")
    return AckContent(change_state(store, row, message.state, by, reason, message.active_us))


def _store_job(store: Store, row: RolloutRow, job: JobReport) -> AckContent:
    """What is news of a job: that it runs, that it has ended, or then with which exit code."""
    _check_job(row, job)
    stored = store.connection.execute(
        "SELECT ended_at, exit_code FROM jobs WHERE rollout = ? AND host = ? AND id = ?",
        (row.id, job.host, job.id),
    ).fetchone()
    if stored is not None:
        ended, exit_code = stored[0] is not None, stored[1]
        has_news = exit_code is None and job.exit_code is not None if ended else bool(job.ended_at)
        if not has_news:
            return AckContent(store.journal.seq, duplicate=True)
    _check_not_ended(row)
    return AckContent(store.journal.append(EventKey(row.id, job.step), "job", job))


def _check_job(row: RolloutRow, job: JobReport) -> None:
    """Refuse what is no job of this rollout, or more than a row should hold."""
    if not 1 <= job.step <= row.steps + 1:
        raise _invalid_message(f"a job of step {job.step}; step {row.steps + 1} comes next")
    if job.ended_at and job.ended_at < job.started_at:
        raise _invalid_message("a job that ended before it began")
    for name in ("id", "host", "session", "command", "end", "output", "last_line"):
        if len(getattr(job, name)) > JOB_TEXT_LIMIT:
            raise _invalid_message(f"{name} of a job has more than {JOB_TEXT_LIMIT} characters")
    numbers = (job.started_at, job.ended_at, job.exit_code, job.log_start, job.log_end)
    if not all(abs(number or 0) < 2**63 for number in numbers):
        raise _invalid_message("a number of a job is too large")


def _check_not_ended(row: RolloutRow) -> None:
    if row.has_ended:
        raise Refusal("ENDED", f"{row.id} has ended: {row.state}.")
