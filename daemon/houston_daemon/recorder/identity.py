"""Who sent a message: the kernel's word (SO_PEERCRED, through libzmq), never the sender's.

Where annotators share one login, the claimed name is kept and marked unverified.
"""

import grp
import os
import pwd
import time
from typing import NamedTuple

_REMEMBER_SECONDS = 60.0
"""How long a user's names and groups are believed before they are looked up again."""
_REMEMBER_PEERS = 1_000
"""Addresses that are remembered at most."""


class Peer(NamedTuple):
    """The process at the other end of a socket."""

    uid: int
    name: str
    """Login name, or the number where there is none."""
    member: bool
    """Whether the user is in the annotators' group."""

    @property
    def owner(self) -> bool:
        """Whether this is the user who runs the daemon, or root."""
        return self.uid in (os.geteuid(), 0)


class Author(NamedTuple):
    """Under which name a person's message is kept."""

    name: str
    uid: int
    verified: bool

    @property
    def by(self) -> str:
        """As an owner of a pause and in changes of state."""
        return f"person:{self.name}"


class Identities:
    """Peer addresses to users, remembered for a minute."""

    def __init__(self, group: str) -> None:
        """group: name of the annotators' group, empty for none."""
        self._gid = grp.getgrnam(group).gr_gid if group else None
        self._known: dict[str, tuple[float, Peer]] = {}

    def peer(self, address: str | None) -> Peer | None:
        """The user behind libzmq's `Peer-Address` (`localhost:uid:gid:pid`); None when unknown."""
        if address is None:
            return None
        until, peer = self._known.get(address, (0.0, None))
        if peer is not None and time.monotonic() <= until:
            return peer
        parts = address.split(":")
        if len(parts) != 4 or not all(part.isdigit() for part in parts[1:]):
            return None
        if len(self._known) >= _REMEMBER_PEERS:  # an address holds a process id: they never end
            self._known.clear()
        peer = self._look_up(int(parts[1]), int(parts[2]))
        self._known[address] = (time.monotonic() + _REMEMBER_SECONDS, peer)
        return peer

    def _look_up(self, uid: int, gid: int) -> Peer:
        try:
            name = pwd.getpwuid(uid).pw_name
            groups = os.getgrouplist(name, gid)
        except KeyError:
            name, groups = str(uid), [gid]
        return Peer(uid, name, self._gid is not None and self._gid in groups)


def author(peer: Peer, claimed: str) -> Author:
    """The name that counts; a claimed one is unverified where it is not the login's own."""
    name = claimed.strip()
    if not name or name == peer.name:
        return Author(peer.name, peer.uid, verified=True)
    return Author(name[:64], peer.uid, verified=False)
