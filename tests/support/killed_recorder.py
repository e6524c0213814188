"""A recorder in a process of its own that a test kills, and starts again on the same home."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from houston_shared.home import Home
from tests.faults.injection import fault_environment

ROOT = Path(__file__).parents[2]


class Killed:
    """The recorder's process and its lives."""

    def __init__(self, home: Home, orders: Path | None = None) -> None:
        """orders: a folder in which faults are ordered."""
        self.home = home
        self._environment = {**os.environ, **fault_environment(orders)} if orders else None
        self.begin()

    def begin(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/support/recorder_process.py"), str(self.home.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert self.process.stdout
        self.leases: dict[str, int] = json.loads(self.process.stdout.readline())

    def lease(self, rollout: str) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(rollout + "\n")
        self.process.stdin.flush()
        return int(json.loads(self.process.stdout.readline()))

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
