"""What systemd (a real datagram socket) hears of a daemon, and what starves its watchdog."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.injection import fault_environment
from tests.support.busy_daemons import calls
from tests.support.station import Station, alive


class Systemd:
    """The other end of NOTIFY_SOCKET. It always reads: beyond ten unread ones nothing is heard."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(address))
        self._more = threading.Condition()
        self.heard: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while assignments := self._socket.recv(4096).decode().splitlines():
            with self._more:
                self.heard += assignments
                self._more.notify_all()

    def until(self, wanted: str, after: str = "") -> None:
        """Wait for an assignment, behind another; the limit only bounds a hanging test."""
        start = self.heard.index(after) if after else 0
        with self._more:
            assert self._more.wait_for(lambda: wanted in self.heard[start:], 60), self.heard

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())


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
    usual = dict(station.environment)
    station.environment |= {
        "WATCHDOG_USEC": "1000000",
        **fault_environment(faults),
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
        station.until(lambda: not (faults / "recorder.batch.before").exists(), 60, rollout)
        before = systemd.heard.count("WATCHDOG=1")
        time.sleep(3)  # six times as long as it pauses
        # One may have been on its way, and the round that was under way feeds once more.
        fed = systemd.heard.count("WATCHDOG=1") - before
        assert fed <= 2, "a stuck writer starves the watchdog"
        assert alive(daemon.pid)

        os.kill(daemon.pid, signal.SIGABRT)  # what systemd does then
        assert daemon.wait(60) == -signal.SIGABRT
    finally:
        daemon.kill()
        daemon.wait()
    station.environment = usual


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
