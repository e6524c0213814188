"""Who sits at this process, as the daemon will name them: the login, or the claimed name."""

import os
from typing import NamedTuple

NAME_LIMIT = 64
"""Characters of a claimed name that are kept."""


class Person(NamedTuple):
    """A user of this machine under one name; several may share a login."""

    name: str
    uid: int


def myself(claimed: str = "") -> Person:
    """Whose presence and claims are one's own. claimed: as in `wire.FromPerson`."""
    import pwd

    uid = os.getuid()
    try:
        login = pwd.getpwuid(uid).pw_name
    except KeyError:
        login = str(uid)
    return Person(claimed.strip()[:NAME_LIMIT] or login, uid)
