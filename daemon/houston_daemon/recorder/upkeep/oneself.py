"""Who works on a home that no daemon has open: the user of this process, by the kernel's word."""

import os
import pwd

from houston_daemon.recorder.people.identity import Author


def author() -> Author:
    """The user of this process; who may write the home's files is its operator."""
    uid = os.geteuid()
    return Author(_login(uid), uid, True, os.getpid(), "operator")


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
