"""Who served a rollout on this machine before: a far end whose connection was cut may not know yet.

`<root>/serving/<rollout>.json` names the process. A new one ends it: the near end has only one
worker for a rollout, so a second connection means that the first is of no use any more.
"""

import json
import os
import signal
import time
from pathlib import Path

from houston_daemon.hosts import processes
from houston_daemon.hosts.processes import ProcessKey

_PATIENCE_SECONDS = 2.0


def replace(root: Path, rollout: str) -> None:
    """End the process that served `rollout` here before, and note this one."""
    note = root / "serving" / f"{rollout}.json"
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = _noted(note)
    if before is not None and before.pid != os.getpid():
        _end(before)
    own = processes.key_of(os.getpid())
    beside = note.with_suffix(f".{own.pid}")
    beside.write_text(json.dumps([own.pid, own.started]))
    beside.replace(note)


def _noted(note: Path) -> ProcessKey | None:
    try:
        pid, started = json.loads(note.read_text())
    except (OSError, ValueError):  # none, or a power cut left half of it
        return None
    return ProcessKey(int(pid), int(started))


def _end(key: ProcessKey) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not processes.is_alive(key):
            return
        processes.send([key.pid], number)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while processes.is_alive(key) and time.monotonic() < deadline:
            time.sleep(0.02)
