"""What each role may do, and which role a user has: the one table of the control socket.

A role includes those below it. Who a user is, is the kernel's word (`identity`); here is only what
the configuration makes of it. A message that the table does not know needs an operator.
"""

import grp
import os
import pwd
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from houston_shared import config, wire
from houston_shared.errors import ConfigurationError, HoustonError

if TYPE_CHECKING:
    from houston_daemon.recorder.people.identity import Peer

Role = Literal["viewer", "annotator", "operator"]
RANK: dict[Role, int] = {"viewer": 0, "annotator": 1, "operator": 2}

LEAST: dict[type[wire.FromPerson], tuple[Role, str]] = {
    wire.AskStatus: ("viewer", "asking how the daemon stands"),
    wire.Present: ("annotator", "being shown as present"),
    wire.Guide: ("annotator", "guiding an agent"),
    wire.EditGuidance: ("annotator", "editing guidance"),
    wire.Withdraw: ("annotator", "withdrawing guidance"),
    wire.Bookmark: ("annotator", "setting a bookmark or a note"),
    wire.Reorder: ("annotator", "reordering guidance"),
    wire.GiveVerdicts: ("annotator", "judging steps"),
    wire.StoreVerdicts: ("annotator", "storing what rules or a judge say of steps"),
    wire.Claim: ("annotator", "claiming a rollout"),
    wire.Steer: ("operator", "pausing, resuming or cancelling a rollout"),
    wire.StartRollouts: ("operator", "starting rollouts"),
    wire.Branch: ("operator", "branching a rollout"),
    wire.EraseBodies: ("operator", "archiving a rollout or erasing what is stored"),
    wire.CleanRollouts: ("operator", "freeing what rollouts keep on the host"),
    wire.StartTraining: ("operator", "training a policy"),
    wire.TrainingMoved: ("operator", "saying how a training run stands"),
    wire.CancelTraining: ("operator", "ending a training run"),
    wire.RegisterPolicy: ("operator", "registering a policy"),
    wire.ActivatePolicy: ("operator", "changing what new rollouts sample with"),
    wire.StopDaemon: ("operator", "stopping the daemon"),
}
"""Least role for each message, and what it does in words."""


class NotAllowed(HoustonError):
    """Who asks may not do it. what: in words. needs: the role that would do."""

    def __init__(self, what: str, needs: Role, standing: str, next: str) -> None:
        cause = f"{what[:1].upper()}{what[1:]} needs the role {needs}; {standing}."
        super().__init__(cause, "Nothing was changed.", next)
        self.what = what
        self.needs = needs


class NotYours(NotAllowed):
    """It belongs to another user."""

    def __init__(self, what: str, name: str) -> None:
        standing = f"{name} may only change what the same Unix user wrote"
        super().__init__(what, "operator", standing, "")


class RoleBook:
    """Roles of one daemon, as its configuration gives them."""

    def __init__(self, roles: config.Roles, group: str) -> None:
        """group: the Unix group that may attach, empty for none.

        Raises ConfigurationError for a user or group that this machine does not have.
        """
        self._group = group
        self.use(roles)

    def use(self, roles: config.Roles) -> None:
        """Go by these from now on. Raises ConfigurationError as the constructor, and keeps what
        it had.
        """
        named: tuple[tuple[Role, tuple[str, ...]], ...] = (
            ("operator", roles.operators),
            ("annotator", roles.annotators),
            ("viewer", roles.viewers),
        )
        for role, names in named:
            for name in names:
                _check(name, f"roles.{role}s")
        self._named = named
        self._member: Role = "viewer" if roles.annotators else "annotator"

    def role(self, uid: int, name: str, gids: Collection[int]) -> Role | None:
        """The highest role of a user; None for who has none.

        name: login name, or the number where there is none. gids: every group of the user.
        """
        if uid in (os.geteuid(), 0):
            return "operator"
        for role, names in self._named:
            if any(_is(one, uid, name, gids) for one in names):
                return role
        return self._member if self._group and _gid(self._group) in gids else None

    def refusal(self, peer: "Peer", message: wire.FromPerson) -> NotAllowed | None:
        """Why this user may not send this message; None when they may."""
        least, what = LEAST.get(type(message), ("operator", type(message).__name__))
        if peer.role is not None and RANK[peer.role] >= RANK[least]:
            return None
        standing = f"{peer.name} {f'has the role {peer.role}' if peer.role else 'has none'}"
        return NotAllowed(what, least, standing, f"Ask an operator: {self.operators()}.")

    def operators(self) -> str:
        """Who is operator, for people to ask."""
        own = _login(os.geteuid())
        return ", ".join(dict.fromkeys((own, *self._named[0][1])))


def groups_of(uid: int, gid: int) -> tuple[str, frozenset[int]]:
    """Login name (or number) of a user, and all groups: that of the process and those by name."""
    name = _login(uid)
    try:
        return name, frozenset(os.getgrouplist(name, gid)) if name != str(uid) else frozenset({gid})
    except OSError:
        return name, frozenset({gid})


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is(entry: str, uid: int, name: str, gids: Collection[int]) -> bool:
    if entry.startswith("@"):
        return _gid(entry[1:]) in gids
    return entry == name or entry == str(uid)


def _gid(group: str) -> int | None:
    """None for a group that is gone: nobody is in it."""
    if group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return None


def _check(entry: str, key: str) -> None:
    group = entry.startswith("@")
    name = entry.removeprefix("@")
    try:
        known = name.isdecimal() or bool(grp.getgrnam(name) if group else pwd.getpwnam(name))
    except KeyError:
        known = False
    if not known:
        raise ConfigurationError(
            f"`{key}` names {entry!r}, which is no {'group' if group else 'user'} of this machine.",
            "The daemon was not started.",
        )
