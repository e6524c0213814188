"""Tie a process to the one that started it: when that ends, however it ends, so does this one.

The signal is asked for by the child itself, and the parent is checked afterwards, so that a parent
that died in between is noticed. The kernel sends it when the *thread* that started the child ends:
children are started from main threads only.
"""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def tie(parent: int) -> bool:
    """End this process when `parent` ends; returns False when it already has. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent
