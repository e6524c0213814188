"""What was said about a rollout since somebody looked: the same word sent again, or another's.

A sender whose answer was lost says it once more, with the same `request`; meanwhile somebody else
may have spoken. It knows kinds of events and bodies, and nothing of what they decide.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.store import Store
from houston_shared.errors import ExitCode
from houston_shared.store.bodies import TYPES, Claimed, GuidanceReordered, StoredState, VerdictGiven
from houston_shared.store.in_order import ASIDE

NEWEST = 100
"""Events that are looked at for a request that was heard already, where nothing was `seen`."""
NEWEST_SEEN = 1_000
"""The same where something was: nobody is heard while they are looked at."""
KEY_LIMIT = 64
"""Characters of the longest `request`."""


class Word(NamedTuple):
    """An event of one of those kinds."""

    seq: int
    step: int
    body: Claimed | VerdictGiven | GuidanceReordered | StoredState


def key(request: str) -> str:
    """The request key; raises HoustonError where it is none."""
    if not 0 < len(request) <= KEY_LIMIT:
        raise denial(f"A request key has 1 to {KEY_LIMIT} characters.", code=ExitCode.USAGE)
    return request


def since(store: Store, rollout: str, kind: str, seen: int) -> Iterator[Word]:
    """Events of one kind behind the sequence `seen`, newest first; erased ones are left out.

    Without `seen` only the newest: what is sent again comes soon.
    """
    rows = store.connection.execute(
        f"SELECT seq, step, body FROM events WHERE rollout = ? AND {ASIDE} AND kind = ?"
        " AND seq > ? AND body IS NOT NULL ORDER BY seq DESC LIMIT ?",
        (rollout, kind, seen, NEWEST_SEEN if seen else NEWEST),
    )
    decode = msgspec.msgpack.Decoder(TYPES[kind]).decode
    for seq, step, body in rows:
        yield Word(seq, step, decode(body))  # type: ignore[arg-type]  # `kind` is one of theirs


def others(word: Word, author: Author) -> bool:
    """Whether somebody else said it: another user, or another name of a shared login."""
    return (word.body.uid, word.body.by) != (author.uid, author.name)
