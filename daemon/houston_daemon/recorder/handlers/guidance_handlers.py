"""What annotators say about a rollout: guidance and its order, bookmarks, notes, presence, claims.

One handler for each message; it returns the answer to send after the commit and raises HoustonError
for what is not done. Verdicts are in `verdict_handlers`, delivery in `guidance_delivery`.
"""

from typing import NamedTuple

import msgspec

from houston_daemon.recorder import guidance_delivery
from houston_daemon.recorder.handlers import draft_handlers
from houston_daemon.recorder.identity_and_roles import Author, NotOwner
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import (
    GUIDANCE_ID_LIMIT,
    UNCHANGED,
    EarlierEvent,
    check_request_key,
    check_text,
    denial,
    find_events_since,
    is_by_other_author,
    require_rollout,
    require_running,
)
from houston_shared.control_messages import ClaimRollout, ReadNote, ReorderGuidance
from houston_shared.errors import NotFound, UsageError
from houston_shared.records import Guidance
from houston_shared.secret_redaction import redact
from houston_shared.store.event_bodies import (
    GuidanceEdited,
    GuidanceQueued,
    GuidanceReordered,
    GuidanceWithdrawn,
    NoteRead,
    RolloutClaimed,
    StepBookmarked,
)
from houston_shared.store.presence_queries import PERSON_NAME_LIMIT
from houston_shared.times_and_counts import count_words
from houston_shared.wire import (
    BookmarkStep,
    EditGuidance,
    Guide,
    ReportPresence,
    RequestStored,
    WithdrawGuidance,
)


def queue_guidance(store: Store, message: Guide, author: Author) -> RequestStored:
    """Queue guidance; the same message again changes nothing."""
    check_text(message.text, "guidance")
    text = redact(message.text)
    if not 0 < len(message.id) <= GUIDANCE_ID_LIMIT:
        raise UsageError(f"The id of guidance has 1 to {GUIDANCE_ID_LIMIT} characters.", UNCHANGED)
    if guidance_delivery.read_guidance(store, message.id) is not None:
        return _answer_repeated_guidance(store, message, text, author)
    row = require_running(store, message.rollout, "The guidance was not queued.")
    drafted = draft_handlers.open_draft_text(store, message.draft, row.id) if message.draft else ""
    body = GuidanceQueued(
        id=message.id,
        author=author.name,
        text=text,
        mode=message.mode,
        words=count_words(text),
        **author.event_fields,
    )
    seq = store.journal.append(EventKey(row.id), "guidance", body)
    if message.draft:
        is_edited = text.strip() != drafted.strip()
        seq = draft_handlers.accept_draft(store, message, author, is_edited=is_edited)
    return _answer_with_guidance(store, seq, message.id)


def _answer_repeated_guidance(
    store: Store, message: Guide, text: str, author: Author
) -> RequestStored:
    number, rollout_id, uid, body = store.connection.execute(
        "SELECT g.number, g.rollout, g.uid, e.body FROM guidance g"
        " JOIN events e ON e.seq = g.number WHERE g.id = ?",
        (message.id,),
    ).fetchone()
    same = rollout_id == message.rollout and guidance_delivery.decode_guidance_text(body) == text
    if not same or uid not in (author.uid, None):
        raise denial(f"The id {message.id} belongs to another message.", "houston guidance")
    return _answer_with_guidance(store, number, message.id)


def edit_guidance(store: Store, message: EditGuidance, author: Author) -> RequestStored:
    """Change queued guidance; refused if it was delivered or edited meanwhile."""
    check_text(message.text, "guidance")
    text = redact(message.text)
    guidance = _require_queued(store, message.id)
    _check_guidance_owner(store, guidance, author, "editing guidance")
    if guidance.revision == message.revision + 1 and guidance.text == text:
        return RequestStored(
            seq=store.journal.seq, guidance=guidance
        )  # sent again after a lost answer
    if guidance.revision != message.revision:
        raise denial(
            f"Guidance {guidance.id} was changed meanwhile: it is at revision {guidance.revision}.",
            f"houston guidance {guidance.rollout}",
        )
    body = GuidanceEdited(
        id=guidance.id,
        revision=message.revision + 1,
        text=text,
        by=author.name,
        words=count_words(text),
        **author.event_fields,
    )
    return _answer_with_guidance(
        store, store.journal.append(EventKey(guidance.rollout), "edit", body), guidance.id
    )


def withdraw_guidance(store: Store, message: WithdrawGuidance, author: Author) -> RequestStored:
    """Take queued guidance back; withdrawn twice is withdrawn."""
    guidance = guidance_delivery.read_guidance(store, message.id)
    if guidance is not None and guidance.state == "withdrawn":
        return RequestStored(seq=store.journal.seq, guidance=guidance)
    guidance = _require_queued(store, message.id)
    _check_guidance_owner(store, guidance, author, "withdrawing guidance")
    body = GuidanceWithdrawn(id=guidance.id, by=author.name, **author.event_fields)
    return _answer_with_guidance(
        store, store.journal.append(EventKey(guidance.rollout), "withdraw", body), guidance.id
    )


def set_bookmark(store: Store, message: BookmarkStep, author: Author) -> RequestStored:
    """Mark a step for everybody, with a note, or remove one's own mark."""
    if message.note:
        check_text(message.note, "a note")
    row = require_rollout(store, message.rollout)
    if not 0 <= message.step <= row.steps + 1:
        raise NotFound(
            f"{row.id} has no step {message.step}.", UNCHANGED, f"houston steps {row.id}"
        )
    _check_bookmark_owner(store, row.id, message.step, author)
    body = StepBookmarked(
        author=author.name,
        note=redact(message.note),
        remove=message.remove,
        **author.event_fields,
    )
    return RequestStored(seq=store.journal.append(EventKey(row.id, message.step), "bookmark", body))


def record_presence(store: Store, message: ReportPresence, author: Author) -> RequestStored:
    """Where somebody looks: rows, no event; seconds old at best.

    Under a name that another user has as a login, a claim shows nothing.
    """
    if not 0 <= message.step < 2**31:
        raise UsageError(f"There is no step {message.step}.", UNCHANGED)
    store.presence.note(store, message, author)
    return RequestStored(seq=store.journal.seq)


def _check_guidance_owner(store: Store, guidance: Guidance, author: Author, operation: str) -> None:
    """Annotators change what their own user wrote, operators what anybody wrote."""
    query = "SELECT uid FROM guidance WHERE id = ?"
    (uid,) = store.connection.execute(query, (guidance.id,)).fetchone()
    if not author.may_change(uid):
        raise NotOwner(f"{operation} of {guidance.author}", author.name)


def _check_bookmark_owner(store: Store, rollout_id: str, step: int, author: Author) -> None:
    """A claimed name neither moves nor removes the mark of the user who has it."""
    row = store.connection.execute(
        "SELECT e.body FROM bookmarks b JOIN events e ON e.seq = b.seq"
        " WHERE b.rollout = ? AND b.step = ? AND b.author = ?",
        (rollout_id, step, author.name),
    ).fetchone()
    if row is None or row[0] is None:
        return
    if not author.may_change(msgspec.msgpack.decode(row[0], type=StepBookmarked).uid):
        raise NotOwner(f"changing a bookmark of {author.name}", author.name)


def _require_queued(store: Store, id: str) -> Guidance:
    guidance = guidance_delivery.read_guidance(store, id)
    if guidance is None:
        raise NotFound(
            f"There is no guidance {id[:GUIDANCE_ID_LIMIT]!r}.",
            UNCHANGED,
            "houston guidance ROLLOUT",
        )
    if guidance.state != "queued":
        when = (
            f"delivered at step {guidance.step}"
            if guidance.state == "delivered"
            else guidance.state
        )
        raise denial(
            f"Guidance {guidance.id} was already {when}.", f"houston guidance {guidance.rollout}"
        )
    return guidance


def _answer_with_guidance(store: Store, seq: int, id: str) -> RequestStored:
    return RequestStored(seq=seq, guidance=guidance_delivery.read_guidance(store, id))


MAX_NAMED_IDS = 20
"""Ids that a refusal names at most."""


def reorder_guidance(store: Store, message: ReorderGuidance, author: Author) -> RequestStored:
    """Deliver what is queued in another order; the same order again changes nothing.

    Any annotator may: nothing that somebody wrote changes.
    """
    row = require_rollout(store, message.rollout)
    rows = store.connection.execute(
        "SELECT id FROM guidance WHERE rollout = ? AND state = 'queued' ORDER BY place", (row.id,)
    )
    queued = tuple(id for (id,) in rows)
    if message.order == queued:
        return RequestStored(seq=store.journal.seq)
    if (earlier := _find_same_order(store, message, author)) is not None:
        return RequestStored(seq=earlier)
    same = len(message.order) == len(queued) and set(message.order) == set(queued)
    if not same or message.seen not in ((), queued):
        now = f"{', '.join(queued[:MAX_NAMED_IDS])}{', …' if len(queued) > MAX_NAMED_IDS else ''}"
        raise denial(
            f"The queue of {row.id} has changed; it holds {now or 'nothing'}.",
            f"houston guidance {row.id}",
        )
    body = GuidanceReordered(ids=message.order, by=author.name, **author.event_fields)
    return RequestStored(seq=store.journal.append(EventKey(row.id), "reorder", body))


def _find_same_order(store: Store, message: ReorderGuidance, author: Author) -> int | None:
    """The event that gave this order, where the newest one did and its answer was lost."""
    newest = next(find_events_since(store, message.rollout, "reorder", 0), None)
    if newest is None or is_by_other_author(newest, author):
        return None
    assert isinstance(newest.body, GuidanceReordered)
    return newest.seq if newest.body.ids == message.order else None


class _ClaimHolder(NamedTuple):
    holder: str
    """Empty for nobody."""
    uid: int | None


def claim_rollout(store: Store, message: ClaimRollout, author: Author) -> RequestStored:
    """Claim, take over, or release with a note; the same request again changes nothing."""
    request = check_request_key(message.request)
    if message.note:
        check_text(message.note, "a note")
    to = _check_receiver(message, author)
    row = require_rollout(store, message.rollout)
    claims = list(find_events_since(store, row.id, "claim", message.seen))
    for claim in claims:
        assert isinstance(claim.body, RolloutClaimed)
        if claim.body.request == request and not is_by_other_author(claim, author):
            return RequestStored(seq=claim.seq)
    claimed = _read_claim_holder(store, row.id)
    is_own = claimed.holder == author.name and claimed.uid == author.uid
    if claimed.holder and not is_own and message.seen and _has_event_by_others(claims, author):
        raise denial(f"{claimed.holder} claimed {row.id} meanwhile.", f"houston claim {row.id}")
    if message.release:
        _check_release(claimed, is_own, author)
    if not message.note and (is_own if not message.release else not claimed.holder):
        return RequestStored(seq=store.journal.seq)  # it is so already
    body = RolloutClaimed(
        by=author.name,
        note=redact(message.note),
        to=to,
        release=message.release,
        request=request,
        **author.event_fields,
    )
    return RequestStored(seq=store.journal.append(EventKey(row.id), "claim", body))


def _check_receiver(message: ClaimRollout, author: Author) -> str:
    """The name that a rollout is handed over to, as it is kept; empty for anybody."""
    to = message.to.strip()
    if not to:
        return ""
    if not (message.release and message.note):
        raise UsageError(
            "A rollout is handed over to somebody by releasing it with a note.", UNCHANGED
        )
    if len(to) > PERSON_NAME_LIMIT or not to.isprintable():
        raise UsageError(f"A name has 1 to {PERSON_NAME_LIMIT} printable characters.", UNCHANGED)
    if to == author.name:
        raise UsageError(f"You are {to}: you cannot hand it over to yourself.", UNCHANGED)
    return to


def mark_note_read(store: Store, message: ReadNote, author: Author) -> RequestStored:
    """Record that the newest note was read by its addressee; anything else changes nothing."""
    row = require_rollout(store, message.rollout)
    note_row = store.connection.execute(
        "SELECT e.body, c.note_to FROM claims c JOIN events e ON e.seq = c.note_seq"
        " WHERE c.rollout = ? AND c.note_seq = ? AND c.read_by = '' AND e.body IS NOT NULL",
        (row.id, message.note),
    ).fetchone()
    if note_row is None:
        return RequestStored(seq=store.journal.seq)
    body, to = note_row
    claim = msgspec.msgpack.decode(body, type=RolloutClaimed)
    if to not in ("", author.name) or (claim.by, claim.uid) == (author.name, author.uid):
        return RequestStored(seq=store.journal.seq)
    read = NoteRead(by=author.name, note=message.note, **author.event_fields)
    return RequestStored(seq=store.journal.append(EventKey(row.id), "note-read", read))


def _has_event_by_others(events: list[EarlierEvent], author: Author) -> bool:
    return any(is_by_other_author(event, author) for event in events)


def _read_claim_holder(store: Store, rollout_id: str) -> _ClaimHolder:
    row = store.connection.execute(
        "SELECT holder, uid FROM claims WHERE rollout = ?", (rollout_id,)
    ).fetchone()
    return _ClaimHolder(*row) if row else _ClaimHolder("", None)


def _check_release(claimed: _ClaimHolder, is_own: bool, author: Author) -> None:
    """One's own claim, or (as an operator) anybody's; a note may be left where nobody holds it."""
    if claimed.holder and not is_own and not author.may_change(claimed.uid):
        raise NotOwner(f"releasing a claim of {claimed.holder}", author.name)
