"""Who sent a message: the kernel's word (SO_PEERCRED, through libzmq), never the sender's.

Where annotators share one login, the claimed name is kept and marked unverified.
"""

import os
import time
from typing import Any, NamedTuple

from houston_daemon.recorder.people.roles import Role, RoleBook, groups_of
from houston_shared.config import Roles

_REMEMBER_SECONDS = 5.0
"""How long a user's name, groups and role are believed before they are looked up again."""
_REMEMBER_PEERS = 1_000
"""Addresses that are remembered at most."""


class Peer(NamedTuple):
    """The process at the other end of a socket."""

    uid: int
    name: str
    """Login name, or the number where there is none."""
    role: Role | None
    """None for who has no business here."""
    pid: int = 0

    @property
    def owner(self) -> bool:
        """Whether this is the user who runs the daemon, or root."""
        return self.uid in (os.geteuid(), 0)


class Author(NamedTuple):
    """Under which name a person's message is kept, and who stands behind it."""

    name: str
    uid: int
    verified: bool
    """Whether the name is the login's own."""
    pid: int
    role: Role

    @property
    def by(self) -> str:
        """As an owner of a pause and in changes of state."""
        return f"person:{self.name}"

    @property
    def fields(self) -> dict[str, Any]:
        """What every event that a person caused says of them besides the name."""
        return {"uid": self.uid, "verified": self.verified, "pid": self.pid, "role": self.role}

    def owns(self, uid: int | None) -> bool:
        """Whether this person may change what that user wrote."""
        return self.role == "operator" or self.uid == uid


class Identities:
    """Peer addresses to users, remembered for a few seconds: who joins or leaves a group counts."""

    def __init__(self, group: str, roles: Roles | None = None) -> None:
        """group: name of the annotators' group, empty for none. Raises ConfigurationError."""
        self.book = RoleBook(roles or Roles(), group)
        self._known: dict[str, tuple[float, Peer]] = {}

    def use(self, roles: Roles) -> None:
        """Go by these roles from the next message on. Raises ConfigurationError."""
        self.book.use(roles)
        self._known.clear()

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
        peer = self._look_up(*map(int, parts[1:]))
        self._known[address] = (time.monotonic() + _REMEMBER_SECONDS, peer)
        return peer

    def _look_up(self, uid: int, gid: int, pid: int) -> Peer:
        name, gids = groups_of(uid, gid)
        return Peer(uid, name, self.book.role(uid, name, gids), pid)


def author(peer: Peer, claimed: str) -> Author:
    """The name that counts; a claimed one is unverified where it is not the login's own."""
    name, role = claimed.strip(), peer.role or "viewer"
    if not name or name == peer.name:
        return Author(peer.name, peer.uid, True, peer.pid, role)
    return Author(name[:64], peer.uid, False, peer.pid, role)
