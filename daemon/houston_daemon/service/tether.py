"""What a worker process runs first: it ties itself to the daemon, then becomes the worker.

The parent-death signal is set by the child itself, and the parent is checked afterwards, so that
a daemon that died in between is noticed. The kernel delivers the signal when the *thread* that
started the child ends: the supervisor starts workers from its main thread only.
"""

import ctypes
import importlib
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie(parent: int) -> bool:
    """End this process when `parent` ends; returns False when it already has."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    return os.getppid() == parent


def main(arguments: list[str]) -> int:
    """`PARENT STARTED_FD MODULE ARGUMENT…`: become `python -m MODULE ARGUMENT…`.

    STARTED_FD is closed when everything is imported: the costly part of a start is over.
    """
    parent, started, module, *rest = arguments
    if not tie(int(parent)):
        return 1
    importlib.import_module(module)
    os.close(int(started))
    del sys.modules[module]  # it runs as `__main__`; what it imports stays
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
