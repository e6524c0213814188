"""What was done in a world, on the host: enough to make the world again and to prove that it is it.

JSON Lines. The first line is the world's settings and the hash of its beginning, each further line
a turn with the call that asked for it and the hash of what it gave. A turn is written after it was
made and before its result is known to anybody, so a world that is made again lacks at most a turn
that nobody saw.
"""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from houston_shared import synced_file


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    settings: dict[str, Any]
    """What the simulator was asked for; never chosen anew."""
    hash: str


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn."""

    call: str
    action: str
    hash: str


class Damaged(Exception):
    """The file cannot be what was written; the text says why."""


class ActionLog:
    """The file of one rollout."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.beginning: Beginning | None = None
        self.turns: list[Turn] = []

    def load(self) -> None:
        """Read it, if there is one. A last line without an end was never answered: it goes.

        Raises OSError, Damaged.
        """
        data, whole = self._read()
        if whole != data:
            with self._file.open("r+b") as opened:
                opened.truncate(len(whole))
                os.fsync(opened.fileno())

    def _read(self) -> tuple[bytes, bytes]:
        """Take over what is in the file and change nothing there; all of it, and its whole lines.

        Raises OSError, Damaged.
        """
        self.beginning, self.turns = None, []
        if not self._file.is_file():
            return b"", b""
        data = self._file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        try:
            lines = whole.splitlines()
            if lines:
                self.beginning = msgspec.json.decode(lines[0], type=Beginning)
            self.turns = [msgspec.json.decode(line, type=Turn) for line in lines[1:]]
        except ValueError:  # msgspec's own, and bytes that are no UTF-8
            raise Damaged(f"{self._file} is damaged") from None
        return data, whole

    def branch(self, parent: Path, step: int, changed: dict[str, Any]) -> None:
        """Write what was done in the parent's world up to and with `step`.

        The parent may be at work: its log is only read. changed: settings that are the branch's
        own. Raises OSError, and Damaged also where the parent has no log.
        """
        past = ActionLog(parent)
        past._read()
        if past.beginning is None:
            raise Damaged(f"{parent}, the record of what its parent did, is no longer there")
        settings = {**past.beginning.settings, **changed}
        turns = [turn for turn in past.turns if int(turn.call.partition(".")[0]) <= step]
        lines = [msgspec.structs.replace(past.beginning, settings=settings), *turns]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        synced_file.write(self._file, data)

    def begin(self, beginning: Beginning) -> None:
        """Write the first line. Raises OSError."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._append(beginning)
        self.beginning = beginning

    def add(self, turn: Turn) -> None:
        """Write a turn. Raises OSError."""
        self._append(turn)
        self.turns.append(turn)

    def _append(self, line: msgspec.Struct) -> None:
        before = self._file.stat().st_size if self._file.is_file() else 0
        try:
            with self._file.open("ab") as opened:
                opened.write(msgspec.json.encode(line) + b"\n")
                opened.flush()
                os.fsync(opened.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # a full disk may have taken a part of the line
                os.truncate(self._file, before)
            raise


def digest(answer: msgspec.Struct) -> str:
    """A hash of everything that an answer says."""
    return hashlib.blake2b(msgspec.json.encode(answer), digest_size=12).hexdigest()
