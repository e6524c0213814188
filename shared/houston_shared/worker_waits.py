"""Why queued rollouts have no worker yet, as a file in the home: an engine does not answer, or
paused rollouts hold the workers.

The daemon writes it; commands and the console read it. A home without such waits has none.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from houston_shared import home_lock
from houston_shared.atomic_file import read_json_file
from houston_shared.home import Home


class WorkerWaits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What keeps workers from being started."""

    workers: str = ""
    """That paused rollouts hold them; empty where they do not."""
    engines: dict[str, str] = {}
    """Engine that does not answer → how it stands: `starting` or `down: …`."""

    def reason(self, engines: Iterable[str]) -> str:
        """Of a queued rollout that samples with these engines; empty where nothing is known."""
        for name in engines:
            if name in self.engines:
                return f"waits for engine {name}: {self.engines[name]}"
        return self.workers


def worker_waits_file(home: Home) -> Path:
    """Where they lie."""
    return home.path / "worker-waits.json"


def read_worker_waits(home: Home) -> WorkerWaits:
    """As the daemon that runs gives them; none where there is no such daemon."""
    waits = read_json_file(worker_waits_file(home), WorkerWaits)
    return waits if waits and home_lock.find_running_daemon(home) else WorkerWaits()
