"""A rollout's part of another machine: where it is, and a note here of what may be left of it.

`<host root>/there/<rollout>@<host>.json` is written before a rollout's first terminal there can be
opened, and removed when all of them have ended. Where a note of a finished rollout remains, its
terminals can still be ended, however late the machine comes back. It holds no environment variable
of the task. This module sends no requests: see `remote_access`.
"""

import hashlib
import os
import socket
from collections.abc import Collection
from pathlib import Path

import msgspec

from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_daemon.hosts.ssh.ssh_command import decode_host_settings
from houston_shared import atomic_file
from houston_shared.config_sections import HostSettings
from houston_shared.records import RolloutSpec


def home_key(home: Path) -> str:
    """A key that tells a home from homes of other machines, for this machine at present."""
    try:
        node = Path("/etc/machine-id").read_text().strip()
    except OSError:
        node = socket.gethostname()
    return hashlib.sha256(os.fsencode(f"{node}:{home}")).hexdigest()[:12]


def name_home(home: Path) -> str:
    """The home as other machines know it: two that are copies have two names."""
    return f"{home_key(home)}:{home}"


class RemotePart(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout's part of another machine."""

    host: str
    """Name of the machine."""
    settings: HostSettings
    key: str
    """Of the home that the rollout began in: names the folder there."""

    def folder(self, rollout: str) -> str:
        """The machine's folder for it, in words for people."""
        root = self.settings.host_root or "the state folder of its user"
        return f"{root}: rollouts/{rollout}"


def remote_part_of(spec: RolloutSpec, host: str) -> RemotePart:
    """The part that a rollout has on one of its machines."""
    return RemotePart(host=host, settings=decode_host_settings(spec.hosts[host]), key=spec.host_key)


class RemoteLeftover(msgspec.Struct, frozen=True, kw_only=True):
    """One note."""

    host: str
    settings: HostSettings
    hello: m.Hello

    @property
    def part(self) -> RemotePart:
        """What it is a note of."""
        return RemotePart(host=self.host, settings=self.settings, key=self.hello.key)


def leftover_path(root: Path, rollout: str, host: str) -> Path:
    """Where the note lies. root: this machine's host root."""
    return root / "there" / f"{rollout}@{host}.json"


def write_leftover(note: Path, leftover: RemoteLeftover) -> None:
    """Note it, if it is not noted yet. Raises OSError."""
    if note.exists():
        return
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Who ends it drives nothing there, and needs neither the folder for itself nor any key.
    bare = msgspec.structs.replace(leftover.hello, environment={}, owner="", lease=m.CLEANUP_LEASE)
    atomic_file.write_atomically(
        note, msgspec.json.encode(msgspec.structs.replace(leftover, hello=bare))
    )


def read_leftover(note: Path) -> RemoteLeftover:
    """A note's content for this version's protocol: an earlier version may have written it.

    Raises OSError, and msgspec.DecodeError where it is damaged.
    """
    leftover = msgspec.json.decode(note.read_bytes(), type=RemoteLeftover)
    hello = msgspec.structs.replace(
        leftover.hello, protocol=m.PROTOCOL_VERSION, lease=m.CLEANUP_LEASE
    )
    return msgspec.structs.replace(leftover, hello=hello)


def find_leftovers(root: Path, rollouts: Collection[str]) -> list[Path]:
    """Notes of these rollouts."""
    notes = sorted((root / "there").glob("*@*.json"))
    return [note for note in notes if note.stem.rpartition("@")[0] in rollouts]
