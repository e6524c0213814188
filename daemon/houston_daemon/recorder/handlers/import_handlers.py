"""Imports a rollout that was sampled elsewhere: a worker's events, in one transaction.

The rollout is stored whole and ended, so everything that reads rollouts treats it alike: steps,
guidance, evaluations, search, verdicts, rows. Its engine and its sandbox are `elsewhere`; it never
had a lease, and nothing can continue from it. `interchange` reads the file; this module only checks
what could harm the store.
"""

import secrets
from itertools import groupby

from msgspec.structs import replace

from houston_daemon.recorder import guidance_delivery, journal_writer
from houston_daemon.recorder.handlers.ingest_handlers import check_result_numbers
from houston_daemon.recorder.handlers.rollout_handlers import SELECT_REQUESTED, store_spec
from houston_daemon.recorder.handlers.verdict_handlers import store_human_verdicts
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_store import RolloutRow, Store
from houston_daemon.recorder.request_checks import Refusal, check_request_key, check_text, denial
from houston_daemon.recorder.rollout_states import change_state
from houston_shared.control_messages import (
    MAX_IMPORTED_STEPS,
    MAX_JUDGED_RANGES,
    REASON_LIMIT,
    GiveVerdicts,
    ImportedStep,
    ImportRollout,
    JudgedSteps,
)
from houston_shared.errors import UsageError
from houston_shared.records import ELSEWHERE, CallIntent, ForkBody, Record
from houston_shared.store.event_bodies import GuidanceQueued, StoredObservation, StoredSample
from houston_shared.task import parse_task_record
from houston_shared.times_and_counts import count_words
from houston_shared.wire import RequestStored

NOTHING_IMPORTED = "Nothing was imported."


def import_rollout(store: Store, message: ImportRollout, author: Author) -> RequestStored:
    """Store it, ended; the same request again gives the same rollout. Raises HoustonError."""
    request = check_request_key(message.request)
    if earlier := store.connection.execute(SELECT_REQUESTED, (request,)).fetchall():
        return RequestStored(seq=earlier[-1][1], rollouts=tuple(id for id, _ in earlier))
    _check_import(message)
    id = store_spec(store, message.spec, request, ELSEWHERE, author)
    change_state(store, _read_row(store, id), "running", author.person_label, author=author)
    _append(store, EventKey(id, 0, 1, "head"), "head", message.head)
    stored_ids: dict[str, str] = {}
    for number, step in enumerate(message.steps, 1):
        _store_step(store, id, number, step, stored_ids)
    row = _read_row(store, id)
    change_state(store, row, message.state, author.person_label, message.reason, author=author)
    masked = _masked_ranges(message.steps)
    for begin in range(0, len(masked), MAX_JUDGED_RANGES):
        part = masked[begin : begin + MAX_JUDGED_RANGES]
        verdicts = GiveVerdicts(request=f"{begin}/{request}"[:64], rollout=id, steps=part)
        store_human_verdicts(store, verdicts, author)
    return RequestStored(seq=store.journal.seq, rollouts=(id,))


def _check_import(message: ImportRollout) -> None:
    spec = message.spec
    if spec.elsewhere is None or spec.engine != ELSEWHERE or spec.parent or spec.origin:
        raise denial("This is not a rollout that was sampled elsewhere.", effect=NOTHING_IMPORTED)
    if parse_task_record(spec.task).name != spec.task.name:
        raise denial(
            f"The task is recorded as {spec.task.name!r}, but its text gives another name.",
            effect=NOTHING_IMPORTED,
        )
    if not 0 < len(message.steps) <= MAX_IMPORTED_STEPS:
        raise denial(
            f"It has {len(message.steps)} steps; 1 to {MAX_IMPORTED_STEPS} can be imported.",
            effect=NOTHING_IMPORTED,
        )
    first_kept = 1
    for number, step in enumerate(message.steps, 1):
        if step.fork is not None:
            fits = first_kept <= step.fork.first_kept_step <= number
            if not (fits and 1 <= step.fork.k < number):
                raise denial(
                    f"The summary before step {number} keeps no steps of its context.",
                    effect=NOTHING_IMPORTED,
                )
            first_kept = step.fork.first_kept_step
        if step.sample.token_ids is not None or step.sample.new_prompt_ids is not None:
            raise denial(
                "Token ids of another program are not imported: nothing guarantees that they "
                "match a tokenizer here.",
                effect=NOTHING_IMPORTED,
            )
        for result in step.results:
            try:
                check_result_numbers(result)
            except Refusal as refusal:
                raise UsageError(refusal.reason, NOTHING_IMPORTED) from None
        for guidance in step.guidance:
            check_text(guidance.text, "guidance")


def _read_row(store: Store, id: str) -> RolloutRow:
    row = store.read_rollout(id)
    assert row is not None, "it was stored in this transaction"
    return row


def _append(store: Store, key: EventKey, kind: str, record: Record) -> int:
    return store.journal.append(key, kind, journal_writer.prepare_body(store.home, record))


def _store_step(
    store: Store, id: str, number: int, step: ImportedStep, stored_ids: dict[str, str]
) -> None:
    """The events of one step, in a worker's order. stored_ids: of guidance, by the file's ids."""

    def key(part: str | None) -> EventKey:
        return EventKey(id, number, 1, part)

    if step.fork is not None:
        fork = _with_stored_ids(step.fork, number, stored_ids)
        _append(store, EventKey(id, number, 1, "fork"), "fork", fork)
    stored = {name: getattr(step.sample, name) for name in step.sample.__struct_fields__}
    _append(store, key("sample"), "sample", StoredSample(**stored, active_us=step.active_us))
    for index, result in enumerate(step.results):
        _append(store, key(f"intent.{index}"), "intent", CallIntent(call=result.call))
        _append(store, key(f"call.{index}"), "result", result)
    for guidance in step.guidance:
        queued = GuidanceQueued(
            id=secrets.token_hex(8),
            author=guidance.author,
            text=guidance.text,
            mode="next",
            words=count_words(guidance.text),
            verified=False,  # the file says so, and nobody here
        )
        _append(store, EventKey(id), "guidance", queued)
        if guidance.id:
            stored_ids[guidance.id] = queued.id
    closed = {name: getattr(step.observation, name) for name in step.observation.__struct_fields__}
    body = StoredObservation(**closed, active_us=step.active_us)
    _append(store, key("observation"), "observation", body)
    guidance_delivery.deliver_guidance(store, id, number, 1)


def _with_stored_ids(fork: ForkBody, number: int, stored_ids: dict[str, str]) -> ForkBody:
    """The fork before a step, with the ids that guidance has here; its sample is not known."""
    return replace(
        fork,
        guidance=tuple(stored_ids[id] for id in fork.guidance if id in stored_ids),
        shortened={stored_ids[id]: n for id, n in fork.shortened.items() if id in stored_ids},
        sample_seq=None,
        before=number,
    )


def _masked_ranges(steps: tuple[ImportedStep, ...]) -> tuple[JudgedSteps, ...]:
    """Neighbouring steps with the same reason, as one range."""
    ranges = []
    for reason, group in groupby(enumerate(steps, 1), key=lambda numbered: numbered[1].mask):
        numbers = [number for number, _ in group]
        if reason:
            ranges.append(
                JudgedSteps(
                    first=numbers[0],
                    last=numbers[-1],
                    verdict="mask",
                    reason=reason[:REASON_LIMIT],
                )
            )
    return tuple(ranges)
