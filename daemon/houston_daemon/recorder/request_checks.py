"""How a request is refused, and how a repeated request is recognised.

Holds `Refusal` (for workers) and `denial` (for people), the test whether an error means a full
disk, the checks of a rollout's id, a text and a request key that handlers share, and the search for
newer events of one kind about a rollout. A client that lost an answer sends the same request key
again; another person may have acted meanwhile. The handler decides what a request does.
"""

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.recorder_store import RolloutRow, Store
from houston_shared.errors import HoustonError, NotFound, UsageError
from houston_shared.guidance_tag import GUIDANCE_TEXT_LIMIT
from houston_shared.store.event_bodies import (
    BODY_TYPES,
    GuidanceReordered,
    RolloutClaimed,
    StoredState,
    VerdictGiven,
)
from houston_shared.store.journal_events import OUT_OF_STEP_EVENTS
from houston_shared.wire import RefusalCode

UNCHANGED = "Nothing was changed."
"""The effect of whatever is denied."""
LOW_SPACE_BYTES = 8 * 1024 * 1024
"""Free bytes under which an I/O error of SQLite is taken for a full disk."""


class Refusal(Exception):
    """A worker's message is not stored; the fields of `wire.Refused`."""

    def __init__(self, code: RefusalCode, reason: str) -> None:
        super().__init__(reason)
        self.code: RefusalCode = code
        self.reason = reason


def denial(cause: str, next: str = "", effect: str = UNCHANGED) -> HoustonError:
    """The HoustonError to raise when a person's message is refused; the person reads it."""
    return HoustonError(cause, effect, next)


def is_disk_full(problem: BaseException, folder: Path) -> bool:
    """Whether an error of SQLite or of a file means that there is no space left."""
    if isinstance(problem, OSError):
        return problem.errno in (errno.ENOSPC, errno.EDQUOT)
    if not isinstance(problem, sqlite3.OperationalError):
        return False
    code = getattr(problem, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return True
    # A failed sync is never forgiven: what reached the disk is unknown.
    lost = code in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
    ioerr = code & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    return ioerr and not lost and shutil.disk_usage(folder).free < LOW_SPACE_BYTES


def is_data_error(problem: BaseException) -> bool:
    """Whether SQLite refused the values of one message, not the statement or the disk."""
    kinds = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError)
    return isinstance(problem, kinds)


REPEAT_SEARCH_EVENTS = 100
"""Events that are looked at for a request that was heard already, where nothing was `seen`."""
MEANWHILE_SEARCH_EVENTS = 1_000
"""The same where something was: nobody is heard while they are looked at."""
REQUEST_KEY_LIMIT = 64
"""Characters of the longest `request`."""
GUIDANCE_ID_LIMIT = 64
"""Characters of the longest id of guidance, or of a draft of it."""


class EarlierEvent(NamedTuple):
    """An event of one of those kinds."""

    seq: int
    step: int
    body: RolloutClaimed | VerdictGiven | GuidanceReordered | StoredState


def check_request_key(request: str) -> str:
    """The request key; raises HoustonError where it is none."""
    if not 0 < len(request) <= REQUEST_KEY_LIMIT:
        raise UsageError(f"A request key has 1 to {REQUEST_KEY_LIMIT} characters.", UNCHANGED)
    return request


def find_events_since(
    store: Store, rollout: str, kind: str, seen_seq: int
) -> Iterator[EarlierEvent]:
    """Events of one kind after the sequence `seen_seq`, newest first; erased ones are left out.

    Without `seen_seq` only the newest: a repeated message comes soon.
    """
    rows = store.connection.execute(
        f"SELECT seq, step, body FROM events WHERE rollout = ? AND {OUT_OF_STEP_EVENTS}"
        " AND kind = ?"
        " AND seq > ? AND body IS NOT NULL ORDER BY seq DESC LIMIT ?",
        (rollout, kind, seen_seq, MEANWHILE_SEARCH_EVENTS if seen_seq else REPEAT_SEARCH_EVENTS),
    )
    decode = msgspec.msgpack.Decoder(BODY_TYPES[kind]).decode
    for seq, step, body in rows:
        yield EarlierEvent(seq, step, decode(body))  # type: ignore[arg-type]  # `kind` is one of theirs


def is_by_other_author(event: EarlierEvent, author: Author) -> bool:
    """Whether somebody else said it: another user, or another name of a shared login."""
    return (event.body.uid, event.body.by) != (author.uid, author.name)


def require_rollout(store: Store, id: str) -> RolloutRow:
    """The rollout with this id; raises HoustonError."""
    row = store.read_rollout(id)
    if row is None:
        raise NotFound(f"There is no rollout {id[:80]!r}.", UNCHANGED, "houston rollout list")
    return row


def require_running(store: Store, id: str, effect: str) -> RolloutRow:
    """The rollout with this id, whose agent may still hear something; raises HoustonError."""
    row = require_rollout(store, id)
    if row.has_ended:
        cause = f"{row.id} has ended ({row.state}); nobody would hear it."
        raise denial(cause, "houston rollout list", effect)
    return row


def check_text(text: str, subject: str) -> None:
    """Refuse an empty text and one that is too long."""
    size = len(text.encode())
    if not text.strip():
        raise UsageError(f"The text of {subject} is empty.", UNCHANGED)
    if size > GUIDANCE_TEXT_LIMIT:
        raise UsageError(
            f"The text of {subject} has {size} bytes; at most {GUIDANCE_TEXT_LIMIT} are allowed.",
            UNCHANGED,
            "Put long material into a file of the workspace and name it.",
        )
