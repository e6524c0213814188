"""Who looks after a rollout, and what they leave for the next person. Shown, never enforced."""

from typing import NamedTuple

from houston_daemon.recorder.people import said_before
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.people.roles import NotYours
from houston_daemon.recorder.people.say import check_text, rollout
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_shared.secret_values import redact
from houston_shared.store.bodies import Claimed
from houston_shared.wire import Done
from houston_shared.wire_people import Claim


class _Held(NamedTuple):
    holder: str
    """Empty for nobody."""
    uid: int | None


def claim(store: Store, message: Claim, author: Author) -> Done:
    """Claim, take over, or release with a note; the same request again changes nothing."""
    request = said_before.key(message.request)
    if message.note:
        check_text(message.note, "a note")
    row = rollout(store, message.rollout)
    words = list(said_before.since(store, row.id, "claim", message.seen))
    for word in words:
        assert isinstance(word.body, Claimed)
        if word.body.request == request and not said_before.others(word, author):
            return Done(seq=word.seq)
    held = _held(store, row.id)
    mine = held.holder == author.name and held.uid == author.uid
    if held.holder and not mine and message.seen and _by_others(words, author):
        raise denial(f"{held.holder} claimed {row.id} meanwhile.", f"houston claim {row.id}")
    if message.release:
        _may_release(held, mine, author)
    if not message.note and (mine if not message.release else not held.holder):
        return Done(seq=store.journal.seq)  # it is so already
    body = Claimed(
        by=author.name,
        note=redact(message.note),
        release=message.release,
        request=request,
        **author.fields,
    )
    return Done(seq=store.journal.append(Key(row.id), "claim", body))


def _by_others(words: list[said_before.Word], author: Author) -> bool:
    return any(said_before.others(word, author) for word in words)


def _held(store: Store, rollout_id: str) -> _Held:
    found = store.connection.execute(
        "SELECT holder, uid FROM claims WHERE rollout = ?", (rollout_id,)
    ).fetchone()
    return _Held(*found) if found else _Held("", None)


def _may_release(held: _Held, mine: bool, author: Author) -> None:
    """One's own claim, or (as an operator) anybody's; a note may be left where nobody holds it."""
    if held.holder and not mine and not author.owns(held.uid):
        raise NotYours(f"releasing a claim of {held.holder}", author.name)
