"""Drafts and messages not yet sent, in the user's own state folder: nothing typed is lost.

One file for each rollout's draft and one for each unsent message, replaced as a whole at every
change, so that whatever dies (terminal, SSH, console, daemon) finds them again. It sends nothing.
"""

import hashlib
import os
import time
from pathlib import Path
from typing import TypeVar

import msgspec
from platformdirs import user_state_path

from houston_console.app.speaking.entries import Entry
from houston_shared.errors import HoustonError
from houston_shared.guidance_id import new_id
from houston_shared.home import Home
from houston_shared.person import NAME_LIMIT
from houston_shared.records import GuidanceMode

T = TypeVar("T", bound=msgspec.Struct)


class Draft(msgspec.Struct, frozen=True):
    """What stands in the composer for one rollout."""

    rollout: str
    text: str
    edits: str = ""
    """Id of the queued guidance that is being edited; empty for a new message."""
    revision: int = 0
    """Its revision as it was seen."""


class Unsent(msgspec.Struct, frozen=True):
    """A message that the daemon has not acknowledged."""

    id: str
    rollout: str
    text: str
    mode: GuidanceMode
    number: int
    """Order of writing, nanoseconds."""
    refused: str = ""
    """The daemon's reason for not taking it; such a message is not sent again by itself."""


class Outbox:
    """Drafts and unsent messages of one person for one home."""

    def __init__(self, home: Home, folder: Path | None = None, claimed: str = "") -> None:
        """folder: where the files are; the user's state folder when None. Raises HoustonError.

        claimed: the name they speak under where several share a login: each has words of their own,
        which nobody else's console takes up or sends under another name.
        """
        self.folder = folder or user_state_path("houston") / "console" / home.key
        name = claimed.strip()[:NAME_LIMIT]
        if name:
            self.folder = self.folder / "people" / hashlib.sha256(name.encode()).hexdigest()[:16]
        self._drafts = self.folder / "drafts"
        self._unsent = self.folder / "unsent"
        try:
            for place in (self._drafts, self._unsent):
                place.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise HoustonError(
                f"The folder {self.folder} for drafts cannot be made: {problem.strerror}.",
                "The console was not opened, because what you type could be lost.",
                "Make it writable, or set XDG_STATE_HOME to a folder of your own.",
            ) from None

    def draft(self, rollout: str) -> Draft:
        """The draft for `rollout`; an empty one when there is none."""
        found = _read(self._drafts / _name(rollout), Draft)
        return found or Draft(rollout, "")

    def keep_draft(self, draft: Draft) -> None:
        """Store a draft; an empty one is removed."""
        path = self._drafts / _name(draft.rollout)
        if draft.text:
            _write(path, draft)
        else:
            path.unlink(missing_ok=True)

    def post(self, rollout: str, text: str, mode: GuidanceMode) -> Unsent:
        """Keep a message until it is acknowledged; its id is made here, once. Raises OSError."""
        message = Unsent(new_id(), rollout, text, mode, time.time_ns())
        _write(self._unsent / _name(message.id), message)
        return message

    def refuse(self, message: Unsent, reason: str) -> None:
        """The daemon will not take it: keep the words and the reason."""
        _write(self._unsent / _name(message.id), msgspec.structs.replace(message, refused=reason))

    def done(self, id: str) -> None:
        """It was acknowledged, or its author dropped it."""
        (self._unsent / _name(id)).unlink(missing_ok=True)

    def unsent(self, rollout: str = "") -> list[Unsent]:
        """Messages without an acknowledgement, oldest first; of one rollout when named."""
        read = [_read(path, Unsent) for path in self._unsent.glob("*.json")]
        found = [one for one in read if one and rollout in ("", one.rollout)]
        return sorted(found, key=lambda one: one.number)

    def entries(self, rollout: str, author: str) -> list[Entry]:
        """The unsent messages of a rollout as the queue shows them."""
        return [
            Entry(
                id=one.id,
                state="refused" if one.refused else "unsent",
                mode=one.mode,
                author=author,
                text=one.text,
                reason=one.refused,
            )
            for one in self.unsent(rollout)
        ]


def _name(key: str) -> str:
    """A file name for an id, whatever is in it."""
    return "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):x}" for c in key) + ".json"


def _read(path: Path, kind: type[T]) -> T | None:
    """The record in `path`; None when there is none, or it was cut by a full disk."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _write(path: Path, record: msgspec.Struct) -> None:
    beside = path.with_suffix(f".{os.getpid()}.new")
    beside.write_bytes(msgspec.json.encode(record))
    beside.replace(path)
