"""What a rollout may still have on another machine: a note here for each, until its end was told.

`<host root>/there/<rollout>@<host>.json` is written before a rollout's first terminal there can be
opened, and removed when all of them have ended. Whoever finds one of a rollout that is over can end
them, however late the machine is back. No environment variable of the task is in it.
"""

from collections.abc import Collection
from pathlib import Path

import msgspec

from houston_daemon.hosts.ssh import messages as m
from houston_shared import synced_file
from houston_shared.config_hosts import Host


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """One note."""

    host: str
    settings: Host
    hello: m.Hello


def place(root: Path, rollout: str, host: str) -> Path:
    """Where the note lies. root: this machine's host root."""
    return root / "there" / f"{rollout}@{host}.json"


def write(note: Path, left: Left) -> None:
    """Note it, if it is not noted yet. Raises OSError."""
    if note.exists():
        return
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Who ends it drives nothing there, and needs neither the folder for itself nor any key.
    bare = msgspec.structs.replace(left.hello, environment={}, owner="", lease=m.OVER)
    synced_file.write(note, msgspec.json.encode(msgspec.structs.replace(left, hello=bare)))


def read(note: Path) -> Left:
    """What a note says, to be said by this Houston: an earlier one may have written it.

    Raises OSError, and msgspec.DecodeError where it is damaged.
    """
    left = msgspec.json.decode(note.read_bytes(), type=Left)
    hello = msgspec.structs.replace(left.hello, protocol=m.PROTOCOL, lease=m.OVER)
    return msgspec.structs.replace(left, hello=hello)


def of(root: Path, rollouts: Collection[str]) -> list[Path]:
    """Notes of these rollouts."""
    notes = sorted((root / "there").glob("*@*.json"))
    return [note for note in notes if note.stem.rpartition("@")[0] in rollouts]
