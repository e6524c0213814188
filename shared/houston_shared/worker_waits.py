"""Why queued rollouts wait for a worker while paused ones hold some, as it lies in the home.

The daemon writes it; commands and the console read it. A home in which nobody waits so has none.
"""

from pathlib import Path

from houston_shared import home_lock
from houston_shared.atomic_file import write_atomically
from houston_shared.home import Home


def _file(home: Home) -> Path:
    return home.path / "worker-wait.txt"


def write_worker_wait(home: Home, reason: str) -> None:
    """Keep the reason, or nothing where it is empty. Raises OSError."""
    if reason:
        write_atomically(_file(home), reason.encode(), durable=False)
    else:
        _file(home).unlink(missing_ok=True)


def read_worker_wait(home: Home) -> str:
    """The reason as the daemon that runs gives it; empty where there is none."""
    try:
        reason = _file(home).read_text(encoding="utf-8")
    except OSError:
        return ""
    return reason if home_lock.find_running_daemon(home) else ""
