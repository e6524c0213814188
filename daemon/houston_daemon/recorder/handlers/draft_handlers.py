"""Drafts of guidance by a critic: stored, accepted, rejected; and what critics and judges cost.

A draft is decided once, by whoever is first. A person accepts it, unchanged or edited, by queuing
guidance that names it (`guidance_handlers.queue_guidance`); the critic's name is stored together
with theirs.
"""

import msgspec

from houston_daemon.recorder import guidance_delivery
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_store import RolloutRow, Store
from houston_daemon.recorder.request_checks import (
    GUIDANCE_ID_LIMIT,
    UNCHANGED,
    check_text,
    denial,
    require_rollout,
    require_running,
)
from houston_shared.control_messages import (
    RejectDraft,
    StoreDraft,
    StoreReviewCost,
    new_guidance_id,
)
from houston_shared.errors import NotFound, UsageError
from houston_shared.records import RolloutSpec
from houston_shared.secret_redaction import redact
from houston_shared.store.event_bodies import (
    AUTOPILOT,
    DraftDecided,
    DraftWritten,
    GuidanceQueued,
    ReviewCostStored,
)
from houston_shared.task import parse_task_record
from houston_shared.times_and_counts import count_words
from houston_shared.wire import Guide, RequestStored

NAME_LIMIT = 200
"""Characters of a critic's name."""
MAX_REVIEW_COST = 1e15


def store_draft(store: Store, message: StoreDraft, author: Author) -> RequestStored:
    """Store a draft; the same message again changes nothing. Raises HoustonError for a rollout that
    has ended."""
    check_text(message.text, "a draft")
    if message.reason:
        check_text(message.reason, "the reason of a draft")
    named = 0 < len(message.critic) <= NAME_LIMIT and len(message.template) <= NAME_LIMIT
    if not (named and 0 < len(message.id) <= GUIDANCE_ID_LIMIT):
        raise UsageError(
            f"A draft needs an id of 1 to {GUIDANCE_ID_LIMIT} characters and the name of its "
            "critic.",
            UNCHANGED,
        )
    row = require_running(store, message.rollout, "The draft was not stored.")
    if not 0 <= message.step <= row.steps:
        raise NotFound(
            f"{row.id} has no closed step {message.step}.", UNCHANGED, f"houston steps {row.id}"
        )
    earlier = store.connection.execute(
        "SELECT rollout FROM critic_drafts WHERE id = ?", (message.id,)
    ).fetchone()
    if earlier is None:
        body = DraftWritten(
            id=message.id,
            critic=message.critic,
            text=redact(message.text),
            reason=redact(message.reason),
            template=message.template,
            by=author.name,
            **author.event_fields,
        )
        store.journal.append(EventKey(row.id, message.step), "draft", body)
        if _is_on_autopilot(store, row):
            _queue_draft_guidance(store, row.id, body, author)
    elif earlier[0] != row.id:
        raise denial(f"The id {message.id} belongs to another draft.", "houston guidance R")
    return RequestStored(seq=store.journal.seq)


def _is_on_autopilot(store: Store, row: RolloutRow) -> bool:
    """Whether the task lets a critic speak without a person; not where its spec was erased."""
    spec = store.read_record(row.spec_seq, RolloutSpec)
    return spec is not None and parse_task_record(spec.task).autopilot


def _queue_draft_guidance(store: Store, rollout: str, draft: DraftWritten, author: Author) -> None:
    """Have the agent hear a draft; it is the critic's own guidance, and nobody decided."""
    spoken = GuidanceQueued(
        id=new_guidance_id(),
        author=f"critic {draft.critic}",
        text=draft.text,
        mode="next",
        words=count_words(draft.text),
        **author.event_fields,
    )
    store.journal.append(EventKey(rollout), "guidance", spoken)
    decided = DraftDecided(id=draft.id, decision="accepted", guidance=spoken.id, by=AUTOPILOT)
    _record_decision(store, rollout, decided, author)


def _record_decision(store: Store, rollout: str, decided: DraftDecided, author: Author) -> int:
    """Store what became of a draft, with who its author is; returns the event's sequence."""
    body = msgspec.structs.replace(decided, **author.event_fields)
    return store.journal.append(EventKey(rollout), "draft-decision", body)


def open_draft_text(store: Store, id: str, rollout: str) -> str:
    """The text of a critic's draft that nobody has decided. Raises HoustonError."""
    row = store.connection.execute(
        "SELECT d.state, d.by, e.body FROM critic_drafts d JOIN events e ON e.seq = d.seq"
        " WHERE d.id = ? AND d.rollout = ?",
        (id, rollout),
    ).fetchone()
    if row is None:
        cause = f"There is no draft {id[:GUIDANCE_ID_LIMIT]!r} for {rollout}."
        look = f"houston guidance {rollout}"
        raise NotFound(cause, "The guidance was not queued.", look)
    state, by, body = row
    if state != "open":
        cause = f"The draft {id} was {state} by {by} meanwhile."
        raise denial(cause, f"houston guidance {rollout}", "The guidance was not queued.")
    return guidance_delivery.decode_guidance_text(body)


def accept_draft(store: Store, message: Guide, author: Author, *, is_edited: bool) -> int:
    """Record that guidance that was just queued accepts its draft; returns the event's sequence."""
    decided = DraftDecided(
        id=message.draft,
        decision="edited" if is_edited else "accepted",
        guidance=message.id,
        by=author.name,
    )
    return _record_decision(store, message.rollout, decided, author)


def reject_draft(store: Store, message: RejectDraft, author: Author) -> RequestStored:
    """Reject a draft; a second time changes nothing. Raises HoustonError if it was accepted."""
    row = store.connection.execute(
        "SELECT rollout, state, by FROM critic_drafts WHERE id = ?", (message.id,)
    ).fetchone()
    if row is None:
        raise NotFound(
            f"There is no draft {message.id[:GUIDANCE_ID_LIMIT]!r}.",
            UNCHANGED,
            "houston guidance R",
        )
    rollout, state, by = row
    if state == "rejected":
        return RequestStored(seq=store.journal.seq)
    if state != "open":
        raise denial(f"The draft {message.id} was {state} by {by}.", f"houston guidance {rollout}")
    decided = DraftDecided(id=message.id, decision="rejected", by=author.name)
    return RequestStored(seq=_record_decision(store, rollout, decided, author))


def store_review_cost(store: Store, message: StoreReviewCost, author: Author) -> RequestStored:
    """Add the cost of a judge or a critic; the same message again changes nothing. Raises
    HoustonError for an unknown rollout."""
    if not (0 < len(message.reviewer) <= NAME_LIMIT and 0 < len(message.request) <= NAME_LIMIT):
        raise UsageError(
            f"A cost needs a key and a reviewer, each of 1 to {NAME_LIMIT} characters.", UNCHANGED
        )
    counts = (message.requests, message.prompt_tokens, message.sampled_tokens)
    cost = message.cost or 0.0
    if min(counts) < 0 or max(counts) >= 2**53 or not 0 <= cost < MAX_REVIEW_COST:
        raise UsageError("Counts and costs are numbers of 0 or more.", UNCHANGED)
    row = require_rollout(store, message.rollout)
    cost_row = store.connection.execute(
        "SELECT 1 FROM review_costs WHERE rollout = ? AND request = ?", (row.id, message.request)
    ).fetchone()
    if cost_row is None:
        body = ReviewCostStored(
            reviewer=message.reviewer,
            request=message.request,
            requests=message.requests,
            prompt_tokens=message.prompt_tokens,
            sampled_tokens=message.sampled_tokens,
            reckoned=message.reckoned,
            cost=message.cost,
            by=author.name,
            **author.event_fields,
        )
        store.journal.append(EventKey(row.id), "review-cost", body)
    return RequestStored(seq=store.journal.seq)
