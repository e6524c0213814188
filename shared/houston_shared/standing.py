"""Why a process says nothing, as far as the kernel knows: stopped, or waiting for a disk."""

from pathlib import Path

STANDS = {"T": "a signal has stopped it (SIGSTOP)", "D": "it waits for a disk or a device"}
"""States of a process that cannot answer, by the letter in /proc/PID/stat (proc(5))."""


def stopped(pid: int) -> bool:
    """Whether a signal has stopped it: it says nothing more until another lets it go on."""
    return _state(pid) == "T"


def stands(pid: int) -> str:
    """Why it cannot answer; empty where the kernel knows of nothing."""
    return STANDS.get(_state(pid), "")


def _state(pid: int) -> str:
    """Empty for 0, for a process that has ended, and where /proc does not show it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace") if pid else ""
    except OSError:
        return ""
    return text.rpartition(")")[2].strip()[:1]
