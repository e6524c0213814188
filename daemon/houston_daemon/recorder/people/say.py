"""What people say about guidance, bookmarks and where they look; one handler a message.

A handler returns the answer to send after the commit; it raises HoustonError for what is not done.
"""

import msgspec

from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.people.roles import NotYours
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps import guidance, states
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Rollout, Store
from houston_shared.errors import ExitCode
from houston_shared.records import Guidance
from houston_shared.secret_values import redact
from houston_shared.store.bodies import (
    Bookmarked,
    GuidanceEdited,
    GuidanceQueued,
    GuidanceWithdrawn,
)
from houston_shared.wire import Bookmark, Done, EditGuidance, Guide, Present, Withdraw
from houston_shared.word_count import words

TEXT_LIMIT = 32 * 1024
"""Bytes of the longest guidance or note."""
ID_LIMIT = 64


def guide(store: Store, message: Guide, author: Author) -> Done:
    """Queue guidance; the same message again changes nothing."""
    check_text(message.text, "guidance")
    text = redact(message.text)
    if not 0 < len(message.id) <= ID_LIMIT:
        raise denial(f"The id of guidance has 1 to {ID_LIMIT} characters.", code=ExitCode.USAGE)
    if guidance.one(store, message.id) is not None:
        return _again(store, message, text, author)
    row = rollout(store, message.rollout)
    if states.ended(row):
        raise denial(
            f"{row.id} has ended ({row.state}); nobody would hear it.",
            "houston rollout list",
            "The guidance was not queued.",
        )
    body = GuidanceQueued(
        id=message.id,
        author=author.name,
        text=text,
        mode=message.mode,
        words=words(text),
        **author.fields,
    )
    return _done(store, store.journal.append(Key(row.id), "guidance", body), message.id)


def _again(store: Store, message: Guide, text: str, author: Author) -> Done:
    number, rollout_id, uid, body = store.connection.execute(
        "SELECT g.number, g.rollout, g.uid, e.body FROM guidance g"
        " JOIN events e ON e.seq = g.number WHERE g.id = ?",
        (message.id,),
    ).fetchone()
    same = rollout_id == message.rollout and guidance.text(body) == text
    if not same or uid not in (author.uid, None):
        raise denial(f"The id {message.id} belongs to another message.", "houston guidance")
    return _done(store, number, message.id)


def edit(store: Store, message: EditGuidance, author: Author) -> Done:
    """Change queued guidance; delivered first wins, and so does a newer edit."""
    check_text(message.text, "guidance")
    text = redact(message.text)
    found = _queued(store, message.id)
    _own(store, found, author, "editing guidance")
    if found.revision == message.revision + 1 and found.text == text:
        return Done(seq=store.journal.seq, guidance=found)  # sent again after a lost answer
    if found.revision != message.revision:
        raise denial(
            f"Guidance {found.id} was changed meanwhile: it is at revision {found.revision}.",
            f"houston guidance {found.rollout}",
        )
    body = GuidanceEdited(
        id=found.id,
        revision=message.revision + 1,
        text=text,
        by=author.name,
        words=words(text),
        **author.fields,
    )
    return _done(store, store.journal.append(Key(found.rollout), "edit", body), found.id)


def withdraw(store: Store, message: Withdraw, author: Author) -> Done:
    """Take queued guidance back; withdrawn twice is withdrawn."""
    found = guidance.one(store, message.id)
    if found is not None and found.state == "withdrawn":
        return Done(seq=store.journal.seq, guidance=found)
    found = _queued(store, message.id)
    _own(store, found, author, "withdrawing guidance")
    body = GuidanceWithdrawn(id=found.id, by=author.name, **author.fields)
    return _done(store, store.journal.append(Key(found.rollout), "withdraw", body), found.id)


def bookmark(store: Store, message: Bookmark, author: Author) -> Done:
    """Mark a step for everybody, with a note, or remove one's own mark."""
    if message.note:
        check_text(message.note, "a note")
    row = rollout(store, message.rollout)
    if not 0 <= message.step <= row.steps + 1:
        raise denial(f"{row.id} has no step {message.step}.", f"houston steps {row.id}")
    _own_mark(store, row.id, message.step, author)
    body = Bookmarked(
        author=author.name,
        note=redact(message.note),
        remove=message.remove,
        **author.fields,
    )
    return Done(seq=store.journal.append(Key(row.id, message.step), "bookmark", body))


def present(store: Store, message: Present, author: Author) -> Done:
    """Where somebody looks: rows, no event; seconds old at best.

    Under a name that another user has as a login, a claim shows nothing.
    """
    if not 0 <= message.step < 2**31:
        raise denial(f"There is no step {message.step}.", code=ExitCode.USAGE)
    store.presence.hear(store, message, author)
    return Done(seq=store.journal.seq)


def rollout(store: Store, id: str) -> Rollout:
    """The rollout with this id; raises HoustonError."""
    row = store.rollout(id)
    if row is None:
        raise denial(f"There is no rollout {id[:80]!r}.", "houston rollout list")
    return row


def _own(store: Store, found: Guidance, author: Author, what: str) -> None:
    """Annotators change what their own user wrote, operators what anybody wrote."""
    query = "SELECT uid FROM guidance WHERE id = ?"
    (uid,) = store.connection.execute(query, (found.id,)).fetchone()
    if not author.owns(uid):
        raise NotYours(f"{what} of {found.author}", author.name)


def _own_mark(store: Store, rollout_id: str, step: int, author: Author) -> None:
    """A claimed name neither moves nor removes the mark of the user who has it."""
    found = store.connection.execute(
        "SELECT e.body FROM bookmarks b JOIN events e ON e.seq = b.seq"
        " WHERE b.rollout = ? AND b.step = ? AND b.author = ?",
        (rollout_id, step, author.name),
    ).fetchone()
    if found is None or found[0] is None:
        return
    if not author.owns(msgspec.msgpack.decode(found[0], type=Bookmarked).uid):
        raise NotYours(f"changing a bookmark of {author.name}", author.name)


def _queued(store: Store, id: str) -> Guidance:
    found = guidance.one(store, id)
    if found is None:
        raise denial(f"There is no guidance {id[:ID_LIMIT]!r}.", "houston guidance ROLLOUT")
    if found.state != "queued":
        when = f"delivered at step {found.step}" if found.state == "delivered" else found.state
        raise denial(
            f"Guidance {found.id} was already {when}.", f"houston guidance {found.rollout}"
        )
    return found


def check_text(text: str, what: str) -> None:
    """Refuse an empty text and one that is too long."""
    size = len(text.encode())
    if not text.strip():
        raise denial(f"The text of {what} is empty.", code=ExitCode.USAGE)
    if size > TEXT_LIMIT:
        raise denial(
            f"The text of {what} has {size} bytes; {TEXT_LIMIT} is the most.",
            "Put long material into a file of the workspace and name it.",
            code=ExitCode.USAGE,
        )


def _done(store: Store, seq: int, id: str) -> Done:
    return Done(seq=seq, guidance=guidance.one(store, id))
