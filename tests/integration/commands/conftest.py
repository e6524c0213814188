"""A real recorder, and the real command in processes of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from houston_shared.home_lock import HomeLock, HomeOwner
from tests.support.houston_command import houston_command
from tests.support.recorder_client import Station


class Command:
    """A `houston` that runs beside the test; its lines can be waited for."""

    def __init__(self, words: tuple[str, ...], folder: Path, environment: dict[str, str]) -> None:
        self.file = folder / f"out-{time.monotonic_ns()}"
        self._out: IO[bytes] = self.file.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "houston_shared.command", *words],
            env=environment,
            cwd=folder,
            stdout=self._out,
            stderr=subprocess.PIPE,
        )

    def lines(self) -> list[str]:
        """Whole lines so far."""
        return self.file.read_text().split("\n")[:-1]

    def until(self, count: int, seconds: float = 60) -> list[str]:
        """Wait for `count` lines; the limit only bounds a hanging test."""
        end = time.monotonic() + seconds
        while len(self.lines()) < count:
            assert time.monotonic() < end, f"{len(self.lines())} of {count} lines came"
            assert self.process.poll() in (None, 0), self.process.stderr.read()  # type: ignore[union-attr]
            time.sleep(0.02)
        return self.lines()

    def ends(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._out.close()


class Desk:
    """The recorder's home and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.station = Station(folder / "home")
        self.environment = {**os.environ, "HOUSTON_HOME": str(folder / "home")}
        self._lock = HomeLock(self.station.home)
        self._commands: list[Command] = []

    def start(self) -> "Desk":
        self.station.start()
        self.hold()
        return self

    def hold(self) -> None:
        """Hold the home, as a daemon does."""
        self._lock.take(HomeOwner(pid=os.getpid(), since=""))

    def let_go(self) -> None:
        """As a daemon that ended."""
        self._lock.release()

    def begin(self, *words: str) -> Command:
        """Run `houston WORDS…` beside the test."""
        command = Command(words, self.folder, self.environment)
        self._commands.append(command)
        return command

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            houston_command(*words),
            env=self.environment,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def json(self, *words: str, stdin: str = "") -> list[dict[str, Any]]:
        result = self.run(*words, "--json", stdin=stdin)
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    def until(self, true: Callable[[], Any], seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        while not (value := true()):
            assert time.monotonic() < end
            time.sleep(0.05)
        return value

    def stop(self) -> None:
        for command in self._commands:
            command.close()
        self.station.stop()
        self._lock.release()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    station = Desk(tmp_path).start()
    yield station
    station.stop()
