"""The guard of an engine: how long it waits for a daemon, and what it counts as one."""

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from houston_daemon.engines.engine_process import process_start_time
from houston_daemon.service import engine_guard
from houston_daemon.service.engine_guard import EngineGuard

GRACE_SECONDS = 20.0
LOOKS = 40
"""A guard that has looked so often without ending its engine would never end it."""


class Home:
    """The lock of a home, as a daemon takes and leaves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.lock = folder / "lock"
        self.held = -1
        self.take()

    def take(self) -> None:
        """A daemon starts."""
        self.folder.mkdir(exist_ok=True)
        self.held = os.open(self.lock, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        """The daemon dies."""
        os.close(self.held)

    def move(self) -> None:
        """Somebody moves the home while its daemon runs."""
        self.folder.rename(self.folder.with_name("moved"))

    def anew(self) -> None:
        """The home is removed and made anew, with a daemon."""
        self.leave()
        shutil.rmtree(self.folder)
        self.take()

    def remove(self) -> None:
        """The daemon dies and its home is removed."""
        self.leave()
        shutil.rmtree(self.folder)


@pytest.fixture
def engine() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


Events = dict[float, Callable[[Home], None]]
SCENARIOS: dict[str, tuple[Events, float | None]] = {
    "a daemon all the time": ({}, None),
    "the daemon dies": ({10: Home.leave}, 10 + GRACE_SECONDS),
    "another comes in time": ({10: Home.leave, 25: Home.take}, None),
    "it dies twice": (
        {10: Home.leave, 25: Home.take, 30: Home.leave},
        30 + GRACE_SECONDS,
    ),
    "daemon and home are gone": ({10: Home.remove}, 10 + GRACE_SECONDS),
    "the home is moved beside its daemon": ({10: Home.move}, None),
    "the home is made anew": ({10: Home.anew}, None),
}
"""What happens at which second, and when the guard ends the engine (None: never)."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_guard_ends_an_engine_that_had_no_daemon_for_the_grace(
    name: str,
    tmp_path: Path,
    engine: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, expected = SCENARIOS[name]
    home = Home(tmp_path / "home")
    now, due = 0.0, dict(events)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        for at in [at for at in due if at <= now]:
            due.pop(at)(home)
        if now > LOOKS * engine_guard.MAX_CHECK_SECONDS:
            engine.kill()
            engine.wait()

    monkeypatch.setattr(engine_guard.time, "monotonic", lambda: now)
    monkeypatch.setattr(engine_guard.time, "sleep", sleep)
    started = process_start_time(engine.pid)
    assert started is not None
    ended = EngineGuard(tmp_path / "engine.json", engine.pid, started, home.lock).wait(
        GRACE_SECONDS
    )
    if expected is None:
        assert ended, "only the end of the engine ends the wait"
    else:
        assert not ended
        assert expected <= now <= expected + 2 * engine_guard.MAX_CHECK_SECONDS


def test_a_guard_ends_with_an_engine_that_ends_by_itself(
    tmp_path: Path, engine: subprocess.Popen[bytes]
) -> None:
    home = Home(tmp_path / "home")
    started = process_start_time(engine.pid)
    assert started is not None
    watching = EngineGuard(tmp_path / "engine.json", engine.pid, started, home.lock)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    assert watching.wait(600)
