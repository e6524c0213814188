"""Who sent a message and what their role allows.

The kernel names the user of a socket peer (SO_PEERCRED); a claimed name is stored in addition and
marked as unverified. `REQUIRED_ROLES` is the only table of which role each control message needs:
add a new message there. Also finds the author of offline work on a home that no daemon has open.
The handlers check who owns a single guidance, claim or bookmark.
"""

import grp
import os
import pwd
import time
from collections.abc import Collection
from typing import Any, Literal, NamedTuple

from houston_shared import wire
from houston_shared.config_sections import RoleSettings
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.store.presence_queries import login_name

Role = Literal["viewer", "annotator", "operator"]
ROLE_RANKS: dict[Role, int] = {"viewer": 0, "annotator": 1, "operator": 2}

REQUIRED_ROLES: dict[type[wire.FromPerson], tuple[Role, str]] = {
    wire.AskStatus: ("viewer", "asking for the daemon's status"),
    wire.ReportPresence: ("annotator", "being shown as present"),
    wire.Guide: ("annotator", "guiding an agent"),
    wire.EditGuidance: ("annotator", "editing guidance"),
    wire.WithdrawGuidance: ("annotator", "withdrawing guidance"),
    wire.BookmarkStep: ("annotator", "setting a bookmark or a note"),
    wire.ReorderGuidance: ("annotator", "reordering guidance"),
    wire.GiveVerdicts: ("annotator", "judging steps"),
    wire.StoreVerdicts: ("annotator", "storing verdicts of rules or a judge"),
    wire.StoreProcessRewards: ("operator", "storing scores of a process reward model"),
    wire.StoreDraft: ("annotator", "storing a critic's draft"),
    wire.RejectDraft: ("annotator", "turning a critic's draft down"),
    wire.StoreReviewCost: ("annotator", "storing the cost of a judge or a critic"),
    wire.ClaimRollout: ("annotator", "claiming a rollout"),
    wire.ReadNote: ("annotator", "marking a note as read"),
    wire.Steer: ("operator", "pausing, resuming or cancelling a rollout"),
    wire.StartRollouts: ("operator", "starting rollouts"),
    wire.ImportRollout: ("operator", "importing a rollout"),
    wire.BranchRollout: ("operator", "branching a rollout"),
    wire.EraseBodies: ("operator", "archiving a rollout or erasing what is stored"),
    wire.CleanRollouts: ("operator", "freeing the files of rollouts on the host"),
    wire.StartTraining: ("operator", "training a policy"),
    wire.ReportTrainingState: ("operator", "reporting the state of a training run"),
    wire.CancelTraining: ("operator", "ending a training run"),
    wire.RegisterPolicy: ("operator", "registering a policy"),
    wire.ActivatePolicy: ("operator", "changing the policy of new rollouts"),
    wire.StopDaemon: ("operator", "stopping the daemon"),
}
"""Least role for each message, and what it does in words."""


class NotAllowed(HoustonError):
    """The sender may not do this. operation: in words. needs: the role that would suffice."""

    def __init__(self, operation: str, needs: Role, explanation: str, next: str) -> None:
        cause = f"{operation[:1].upper()}{operation[1:]} needs the role {needs}; {explanation}."
        super().__init__(cause, "Nothing was changed.", next)
        self.what = operation
        self.needs = needs


class NotOwner(NotAllowed):
    """It belongs to another user."""

    def __init__(self, operation: str, name: str) -> None:
        explanation = f"{name} may only change what the same Unix user wrote"
        super().__init__(operation, "operator", explanation, "")


_OWNER_UIDS = frozenset((os.geteuid(), 0))
"""Who runs this process, which never changes its user, and root. Asked of the system once: it is
looked at for each message."""


class RoleBook:
    """Roles of one daemon, as its configuration gives them."""

    def __init__(self, roles: RoleSettings, group: str) -> None:
        """group: the Unix group that may attach, empty for none.

        Raises ConfigurationError for a user or group that this machine does not have.
        """
        self._group = group
        self.use_roles(roles)

    def use_roles(self, roles: RoleSettings) -> None:
        """Use these roles from now on. Raises ConfigurationError as the constructor, and keeps the
        old ones then.
        """
        named: tuple[tuple[Role, tuple[str, ...]], ...] = (
            ("operator", roles.operators),
            ("annotator", roles.annotators),
            ("viewer", roles.viewers),
        )
        for role, names in named:
            for name in names:
                _check_entry(name, f"roles.{role}s")
        self._named = named
        self._member: Role = "viewer" if roles.annotators else "annotator"

    def role_of(self, uid: int, name: str, gids: Collection[int]) -> Role | None:
        """The highest role of a user; None for who has none.

        name: login name, or the number where there is none. gids: every group of the user.
        """
        if uid in _OWNER_UIDS:
            return "operator"
        for role, names in self._named:
            if any(_matches_entry(entry, uid, name, gids) for entry in names):
                return role
        return self._member if self._group and _group_id(self._group) in gids else None

    def refusal(self, peer: "Peer", message: wire.FromPerson) -> NotAllowed | None:
        """Why this user may not send this message; None when they may."""
        least, operation = REQUIRED_ROLES.get(type(message), ("operator", type(message).__name__))
        if peer.role is not None and ROLE_RANKS[peer.role] >= ROLE_RANKS[least]:
            return None
        explanation = f"{peer.name} {f'has the role {peer.role}' if peer.role else 'has none'}"
        return NotAllowed(operation, least, explanation, f"Ask an operator: {self.operators()}.")

    def operators(self) -> str:
        """Who is operator, for people to ask."""
        own = login_name(os.geteuid())
        return ", ".join(dict.fromkeys((own, *self._named[0][1])))


def look_up_groups(uid: int, gid: int) -> tuple[str, frozenset[int]]:
    """Login name (or number) of a user and all groups: the process's own and those by name."""
    name = login_name(uid)
    try:
        return name, frozenset(os.getgrouplist(name, gid)) if name != str(uid) else frozenset({gid})
    except OSError:
        return name, frozenset({gid})


def _matches_entry(entry: str, uid: int, name: str, gids: Collection[int]) -> bool:
    if entry.startswith("@"):
        return _group_id(entry[1:]) in gids
    return entry == name or entry == str(uid)


def _group_id(group: str) -> int | None:
    """None for a group that is gone: nobody is in it."""
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return None


def _check_entry(entry: str, key: str) -> None:
    group = entry.startswith("@")
    name = entry.removeprefix("@")
    try:
        is_known = name.isdecimal() or bool(grp.getgrnam(name) if group else pwd.getpwnam(name))
    except KeyError:
        is_known = False
    if not is_known:
        raise ConfigurationError(
            f"`{key}` names {entry!r}, which is not a {'group' if group else 'user'} of this "
            "machine.",
            "The daemon was not started.",
        )


_PEER_CACHE_SECONDS = 5.0
"""How long a user's name, groups and role are believed before they are looked up again."""
_PEER_CACHE_SIZE = 1_000
"""Addresses that are remembered at most."""


class Peer(NamedTuple):
    """The process at the other end of a socket."""

    uid: int
    name: str
    """Login name, or the number where there is none."""
    role: Role | None
    """None for who has no business here."""
    pid: int = 0
    host: str = ""
    """The machine of a worker that speaks over TCP; empty for this one."""

    @property
    def owner(self) -> bool:
        """Whether this is the user who runs the daemon, or root."""
        return self.uid in _OWNER_UIDS


class Author(NamedTuple):
    """The name under which a person's message is stored, and the user who sent it."""

    name: str
    uid: int
    verified: bool
    """Whether the name is the login's own."""
    pid: int
    role: Role

    @property
    def person_label(self) -> str:
        """As an owner of a pause and in changes of state."""
        return f"person:{self.name}"

    @property
    def event_fields(self) -> dict[str, Any]:
        """What every event that a person caused says of them besides the name."""
        return {"uid": self.uid, "verified": self.verified, "pid": self.pid, "role": self.role}

    def may_change(self, uid: int | None) -> bool:
        """Whether this person may change what that user wrote."""
        return self.role == "operator" or self.uid == uid


class PeerIdentities:
    """Maps peer addresses to users; cached for seconds only, so a change of groups takes effect."""

    def __init__(self, group: str, roles: RoleSettings | None = None) -> None:
        """group: name of the annotators' group, empty for none. Raises ConfigurationError."""
        self.roles = RoleBook(roles or RoleSettings(), group)
        self._known: dict[str, tuple[float, Peer]] = {}

    def use_roles(self, roles: RoleSettings) -> None:
        """Go by these roles from the next message on. Raises ConfigurationError."""
        self.roles.use_roles(roles)
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
        if len(self._known) >= _PEER_CACHE_SIZE:  # an address holds a process id: they never end
            self._known.clear()
        peer = self._look_up(*map(int, parts[1:]))
        self._known[address] = (time.monotonic() + _PEER_CACHE_SECONDS, peer)
        return peer

    def _look_up(self, uid: int, gid: int, pid: int) -> Peer:
        name, gids = look_up_groups(uid, gid)
        return Peer(uid, name, self.roles.role_of(uid, name, gids), pid)


def resolve_author(peer: Peer, claimed: str) -> Author:
    """The author of a message; a claimed name other than the login's own is unverified."""
    name, role = claimed.strip(), peer.role or "viewer"
    if not name or name == peer.name:
        return Author(peer.name, peer.uid, True, peer.pid, role)
    return Author(name[:64], peer.uid, False, peer.pid, role)


def identify_offline_author() -> Author:
    """The user of this process, as operator: anyone who may write the home's files is one."""
    uid = os.geteuid()
    return Author(login_name(uid), uid, True, os.getpid(), "operator")
