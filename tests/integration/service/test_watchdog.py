"""What systemd (a real datagram socket) hears of a daemon, and what starves its watchdog."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.busy import calls
from tests.support.station import Station, alive


class Systemd:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(address))
        self.heard: list[str] = []

    def listen(self, seconds: float) -> list[str]:
        """Assignments heard within so many seconds."""
        new: list[str] = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                new += self._socket.recv(4096).decode().splitlines()
            except TimeoutError:
                break
        self.heard += new
        return new

    def until(self, wanted: str, after: str = "") -> None:
        """Wait for an assignment, behind another; the limit only bounds a hanging test."""
        end = time.monotonic() + 60
        start = self.heard.index(after) if after else 0
        while wanted not in self.heard[start:]:
            assert time.monotonic() < end, self.heard
            self.listen(0.2)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(station: Station, tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(tmp_path / "notify")
    station.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
    yield made
    made.close()


def test_from_its_start_to_its_end_and_starved_when_the_recorder_hangs(
    station: Station, systemd: Systemd
) -> None:
    """As a unit of Type=notify: the process that is started is the daemon."""
    faults = station.folder / "faults"
    faults.mkdir()
    station.environment |= {
        "WATCHDOG_USEC": "1000000",
        "HOUSTON_FAULTS": str(faults),
        "HOUSTON_SERVICE": "user houston.service",
        "HOUSTON__DAEMON__DRAIN_SECONDS": "4",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-m", "houston_shared.command", "daemon", "start", "--foreground"],
        env=station.environment,
        stderr=subprocess.DEVNULL,
        cwd=station.folder,
    )
    try:
        systemd.until("READY=1")
        assert not any(said.startswith("WATCHDOG") for said in systemd.heard[:1])
        systemd.until("WATCHDOG=1")
        owner = json.loads((station.home / "daemon.lock").read_text())
        assert (owner["pid"], owner["service"]) == (daemon.pid, "user houston.service")

        daemon.send_signal(signal.SIGHUP)
        systemd.until("RELOADING=1")
        assert any(said.startswith("MONOTONIC_USEC=") for said in systemd.heard)
        systemd.until("READY=1", after="RELOADING=1")

        rollout = calls(station, ("sleep", {"sleep_time": 600}))
        systemd.until("STATUS=1 workers")
        (faults / "order").write_text("delay=3600")
        (faults / "order").replace(faults / "recorder.batch.before")
        station.until(lambda: not (faults / "recorder.batch.before").exists(), 20, rollout)
        systemd.listen(1.0)  # what was on its way
        assert "WATCHDOG=1" not in systemd.listen(2.5), "a stuck writer starves the watchdog"
        assert alive(daemon.pid)

        os.kill(daemon.pid, signal.SIGABRT)  # what systemd does then
        assert daemon.wait(20) == -signal.SIGABRT
    finally:
        daemon.kill()
        daemon.wait()
    for name in ("HOUSTON_FAULTS", "HOUSTON_SERVICE", "WATCHDOG_USEC"):
        station.environment.pop(name)


def test_a_restart_of_a_service_is_left_to_systemd(station: Station, tmp_path: Path) -> None:
    """systemctl is played by a script; the daemon that runs as a unit is not taken out of it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    program.chmod(0o755)
    station.environment["HOUSTON_SERVICE"] = "user houston.service"
    station.start()
    pid = station.pid
    station.environment["PATH"] = f"{folder}:{station.environment['PATH']}"
    assert "restarted houston.service" in station.run("daemon", "restart").stdout
    assert (tmp_path / "said").read_text() == "--user restart houston.service\n"
    assert station.pid == pid
    program.write_text("#!/bin/sh\nexit 5\n")
    assert "exit code 5" in station.run("daemon", "restart", code=1).stderr
