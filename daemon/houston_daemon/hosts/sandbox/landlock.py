"""Keeps a sandbox that shares the machine's network away from the machine's abstract sockets.

Abstract Unix sockets (X11, D-Bus, container runtimes) belong to a network namespace, not to a
folder: a sandbox without a network never sees them, one with the network would. Landlock can scope
them since its ABI 6 (Linux 6.12; landlock(7)). It must be asked for by the process itself, so a
short Python stands between the enclosure and bubblewrap. Files and ports it leaves alone.
"""

import ctypes
import shutil
import stat
import sys
from functools import lru_cache
from pathlib import Path

_ABI = 6
_CREATE_RULESET = 444
_VERSION_FLAG = 1
_PROGRAM = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
ruleset = (ctypes.c_uint64 * 3)(0, 0, 1)  # no files, no ports; LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
descriptor = libc.syscall(444, ruleset, 24, 0)
if descriptor < 0 or libc.prctl(38, 1, 0, 0, 0) or libc.syscall(446, descriptor, 0):
    sys.exit(f"landlock: {os.strerror(ctypes.get_errno())}")
os.close(descriptor)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Numbers of landlock_create_ruleset and landlock_restrict_self are the same everywhere; 38 is
PR_SET_NO_NEW_PRIVS, which an ordinary user must have set."""


def scoping() -> list[str]:
    """The words before bubblewrap's that scope abstract sockets; empty where the kernel cannot."""
    return [sys.executable, "-I", "-S", "-c", _PROGRAM] if _possible() else []


@lru_cache(maxsize=1)
def _possible() -> bool:
    program = shutil.which("bwrap")
    if program is None or Path(program).stat().st_mode & stat.S_ISUID:
        return False  # it needs the rights that its owner's bit gives
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    return int(version) >= _ABI
