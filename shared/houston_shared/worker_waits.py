"""Why queued rollouts wait for a worker while paused ones hold some, as it lies in the home.

The daemon writes it; commands and the console read it. A home in which nobody waits so has none.
"""

from pathlib import Path

from houston_shared import home_lock
from houston_shared.home import Home


def worker_wait_file(home: Home) -> Path:
    """Where the reason lies."""
    return home.path / "worker-wait.txt"


def read_worker_wait(home: Home) -> str:
    """The reason as the daemon that runs gives it; empty where there is none."""
    try:
        reason = worker_wait_file(home).read_text(encoding="utf-8")
    except OSError:
        return ""
    return reason if home_lock.find_running_daemon(home) else ""
