"""Tie a process to the one that started it (PR_SET_PDEATHSIG): when that ends, so does this one.

The signal is asked for by the child itself, and the parent is checked afterwards, so that a
parent that died in between is noticed. The kernel sends it when the *thread* that started the
child ends: children are started from main threads only. Imports ctypes only: relays, simulators
and other small programs use it.
"""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Get `number` when `parent` ends; returns False when it already has. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent
