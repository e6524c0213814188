"""Whether who is named in `[roles]` exists here and can reach the daemon at all.

What a role may do is the recorder's table; whom the kernel lets through to the sockets is decided
by membership in `daemon.group`.
"""

import grp
import os
import pwd

from houston_daemon.recorder.people.roles import RoleBook
from houston_shared.config import Loaded
from houston_shared.errors import ConfigurationError


def check_roles(loaded: Loaded) -> None:
    """Raise ConfigurationError, with the file, for a user or group that this machine lacks."""
    settings = loaded.config
    try:
        RoleBook(settings.roles, settings.daemon.group)
    except ConfigurationError as problem:
        raise ConfigurationError(
            f"{loaded.source}: {problem.cause}",
            problem.effect,
            f"Correct it in {loaded.source}; `getent passwd` lists users, `getent group` groups.",
        ) from None


def outsiders(loaded: Loaded) -> list[str]:
    """Users whom `[roles]` names and whom the home's folder keeps out: no members of the group."""
    group, roles = loaded.config.daemon.group, loaded.config.roles
    named = dict.fromkeys((*roles.operators, *roles.annotators, *roles.viewers))
    return [name for name in named if not name.startswith("@") and not _let_in(name, group)]


def warning(loaded: Loaded) -> str:
    """One sentence about them, with what to do; empty where there are none."""
    if not (found := outsiders(loaded)):
        return ""
    group = loaded.config.daemon.group
    names = ", ".join(found)
    if not group:
        return f"[roles] names {names}, but without [daemon] group nobody else gets in."
    return (
        f"[roles] names {names}, not in the group {group} and so kept out; "
        f"as root: usermod -aG {group} USER, then they log in again."
    )


def _let_in(name: str, group: str) -> bool:
    try:
        user = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        return name.isdecimal()  # a number that no password file knows: nobody can tell
    if user.pw_uid in (0, os.geteuid()):
        return True
    try:
        gid = grp.getgrnam(group).gr_gid if group else None
    except KeyError:
        return False
    return gid is not None and gid in os.getgrouplist(user.pw_name, user.pw_gid)
