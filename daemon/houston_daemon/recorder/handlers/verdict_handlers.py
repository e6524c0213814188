"""Verdicts on closed steps: keep, mask, or taken back; every one stays in the journal.

Stores those of people and, separately, those of rules and of a judge, which never affect a
person's. A verdict on a step that a branch shares belongs to its parent. Readers decide which
verdict counts in the end (`houston_shared.verdict_precedence`).
"""

from typing import Any

from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_store import RolloutRow, Store
from houston_daemon.recorder.request_checks import (
    UNCHANGED,
    check_request_key,
    denial,
    find_events_since,
    is_by_other_author,
    require_rollout,
)
from houston_shared.control_messages import (
    MAX_JUDGED_RANGES,
    MAX_JUDGED_STEPS,
    REASON_LIMIT,
    GiveVerdicts,
    JudgedSteps,
    StoreVerdicts,
)
from houston_shared.errors import NotFound, UsageError
from houston_shared.secret_redaction import redact
from houston_shared.store import rollout_queries
from houston_shared.store.event_bodies import VerdictGiven
from houston_shared.store.rollout_queries import OwnedStepRange
from houston_shared.wire import RequestStored

SOURCE_NAME_LIMIT = 200
"""Characters of the name of a judge."""
SOURCE_NAME_PREFIXES = {"rule": "rules", "judge": "judge"}
"""How the name of who speaks begins, by source."""

JudgedStretch = tuple[JudgedSteps, OwnedStepRange]
"""What is said, and of whose steps."""


def store_human_verdicts(store: Store, message: GiveVerdicts, author: Author) -> RequestStored:
    """Keep, mask or leave ranges of steps undecided; the same request again changes nothing."""
    request = check_request_key(message.request)
    parts = _split_by_owner(store, message)
    if same_seq := _find_same_verdict(store, parts, message, author):
        return RequestStored(seq=same_seq)
    return _append_verdicts(
        store, parts, {"by": author.name, "request": request, **author.event_fields}
    )


def store_automatic_verdicts(store: Store, message: StoreVerdicts, author: Author) -> RequestStored:
    """Store verdicts of rules or a judge next to people's; the same request changes nothing.

    They are stored under the rule's or judge's name, together with who ran it.
    """
    request = check_request_key(message.request)
    parts = _split_by_owner(store, message)
    if (
        message.by.partition(":")[0] != SOURCE_NAME_PREFIXES[message.source]
        or len(message.by) > SOURCE_NAME_LIMIT
    ):
        raise UsageError(
            f"{message.by[:SOURCE_NAME_LIMIT]!r} is not a valid name for a {message.source}.",
            UNCHANGED,
            f"The name must begin with {SOURCE_NAME_PREFIXES[message.source]!r} and have at "
            f"most {SOURCE_NAME_LIMIT} characters.",
        )
    for owner in dict.fromkeys(part.rollout for _, part in parts):
        for event in find_events_since(store, owner, "verdict", 0):
            verdict = event.body
            assert isinstance(verdict, VerdictGiven)
            if (verdict.request, verdict.uid, verdict.source) == (
                request,
                author.uid,
                message.source,
            ):
                return RequestStored(seq=event.seq)
    fields = {
        "by": message.by,
        "source": message.source,
        "asked": author.name,
        **author.event_fields,
    }
    return _append_verdicts(store, parts, {"request": request, **fields})


def _split_by_owner(store: Store, message: GiveVerdicts | StoreVerdicts) -> list[JudgedStretch]:
    """What is said of whose steps; raises HoustonError for what cannot be judged."""
    row = require_rollout(store, message.rollout)
    if not 0 < len(message.steps) <= MAX_JUDGED_RANGES:
        raise UsageError(f"A message judges 1 to {MAX_JUDGED_RANGES} ranges of steps.", UNCHANGED)
    for judged in message.steps:
        _check_judged_steps(row, judged)
    if sum(judged.last - judged.first + 1 for judged in message.steps) > MAX_JUDGED_STEPS:
        raise UsageError(
            f"A message judges at most {MAX_JUDGED_STEPS} steps.", UNCHANGED, "Send it in parts."
        )
    return [
        (judged, part)
        for judged in message.steps
        for part in store.read(rollout_queries.step_ranges(row.id, judged.first, judged.last))
    ]


def _append_verdicts(
    store: Store, parts: list[JudgedStretch], fields: dict[str, Any]
) -> RequestStored:
    for judged, part in parts:
        body = VerdictGiven(
            last=part.last, verdict=judged.verdict, reason=redact(judged.reason), **fields
        )
        store.journal.append(EventKey(part.rollout, part.first), "verdict", body)
    return RequestStored(seq=store.journal.seq)


def _check_judged_steps(row: RolloutRow, judged: JudgedSteps) -> None:
    if not 1 <= judged.first <= judged.last <= row.steps:
        closed = f"closed steps 1 to {row.steps}" if row.steps else "no closed step yet"
        named = (
            f"step {judged.first}"
            if judged.first == judged.last
            else f"steps {judged.first} to {judged.last}"
        )
        raise NotFound(
            f"{row.id} has {closed}; {named} cannot be judged.",
            UNCHANGED,
            f"houston steps {row.id} -n 1",
        )
    if len(judged.reason) > REASON_LIMIT:
        raise UsageError(f"A reason has at most {REASON_LIMIT} characters.", UNCHANGED)


def _find_same_verdict(
    store: Store, parts: list[JudgedStretch], message: GiveVerdicts, author: Author
) -> int:
    """The event that says the same already, 0 for none; raises HoustonError where another judged
    one of the steps since.
    """
    owners = dict.fromkeys(part.rollout for _, part in parts)
    events = [
        (owner, event)
        for owner in owners
        for event in find_events_since(store, owner, "verdict", message.seen)
    ]
    for _, event in events:
        assert isinstance(event.body, VerdictGiven)
        if event.body.request == message.request and not is_by_other_author(event, author):
            return event.seq
    for owner, event in events if message.seen else ():
        verdict = event.body
        assert isinstance(verdict, VerdictGiven)
        shared = any(
            part.rollout == owner and part.first <= verdict.last and event.step <= part.last
            for _, part in parts
        )
        if shared and verdict.source == "human" and is_by_other_author(event, author):
            raise denial(
                f"{verdict.by} gave {_name_steps(event.step, verdict.last)} the verdict "
                f"{verdict.verdict} meanwhile.",
                f"houston verdict {message.rollout}",
            )
    return 0


def _name_steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"
