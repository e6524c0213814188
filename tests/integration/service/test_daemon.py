"""Start, stop and everything between, with real processes and the real recorder."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
from tests.support.other_user import NOBODY, needs_root
from tests.support.station import Station, alive, command_line, process_state
from tests.support.tiers import sampled


def until(done: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait; the limit only bounds a hanging test."""
    end = time.monotonic() + seconds
    while not (value := done()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return value


def popen(station: Station, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "houston_shared.command", *words],
        env=station.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=station.folder,
    )


def owner(station: Station) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((station.home / "daemon.lock").read_text())
    return found


def daemons(station: Station) -> list[int]:
    """Daemon processes of this home, by their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and alive(int(entry.name)):
            words = command_line(entry).split()
            if "houston_daemon.service.daemon_process" in words and str(station.home) in words:
                found.append(int(entry.name))
    return found


def test_a_start_returns_when_it_is_ready(station: Station) -> None:
    said = station.run("daemon", "start").stdout
    (status,) = station.json("daemon", "status")
    assert str(status["pid"]) in said
    assert status["state"] == "running"
    assert status["rollouts"] == {} or not any(status["rollouts"].values())
    wanted = {"uptime", "epoch", "version", "home", "workers", "queue", "commit_p99_ms", "wal_mb"}
    wanted |= {"disk_free_mb", "consoles", "engines", "last_error", "search_lag"}
    assert wanted <= set(status)
    text = station.run("daemon", "status").stdout
    assert "configuration" not in text
    assert "running on" in text


def test_what_starts_and_stops_it_gives_data(station: Station) -> None:
    (started,) = station.json("daemon", "start")
    assert (started["state"], started["since"]) == ("running", None)
    assert started["pid"] == station.pid
    (again,) = station.json("daemon", "start")
    assert (again["pid"], again["since"]) == (started["pid"], owner(station)["since"])
    lines = station.json("daemon", "logs", "-n", "1")
    assert lines == [{"log": str(station.home / "logs" / "daemon.log"), "line": lines[0]["line"]}]
    assert f"ready (pid {station.pid}" in lines[0]["line"]
    (restarted,) = station.json("daemon", "restart")
    assert restarted["pid"] == station.pid != started["pid"]
    (stopped,) = station.json("daemon", "stop")
    assert (stopped["state"], stopped["pid"]) == ("stopped", restarted["pid"])
    assert station.json("daemon", "stop")[0]["pid"] is None


def test_started_twice_it_says_who_runs_and_since_when(station: Station) -> None:
    station.start()
    pid = station.pid
    said = station.run("daemon", "start").stdout
    assert said.startswith(f"already running (pid {pid}, since ")
    assert owner(station)["since"] in said
    assert station.pid == pid


def test_another_configuration_needs_a_restart(station: Station) -> None:
    station.start()
    station.environment["HOUSTON__DAEMON__MAX_ROLLOUTS"] = "3"
    done = station.run("daemon", "start", code=75)
    assert "another configuration" in done.stderr
    assert "houston daemon restart" in done.stderr
    station.run("daemon", "restart")
    station.run("daemon", "start")


def test_of_eight_starts_at_once_exactly_one_daemon_runs(station: Station) -> None:
    starting = [popen(station, "daemon", "start") for _ in range(8)]
    said = [process.communicate(timeout=120) for process in starting]
    assert [process.returncode for process in starting] == [0] * 8, said
    pid = station.pid
    station.until(lambda: daemons(station) == [pid], 60, "the others have gone")
    assert sum("already running" not in stdout for stdout, _ in said) == 1
    assert all(f"(pid {pid}" in stdout for stdout, _ in said), "each found it ready"


def test_a_stop_ends_it_and_stopping_again_is_no_error(station: Station) -> None:
    assert "no daemon runs" in station.run("daemon", "stop").stdout
    station.start()
    pid = station.pid
    assert f"stopped (pid {pid})" in station.run("daemon", "stop").stdout
    assert not alive(pid)
    assert "no daemon runs" in station.run("daemon", "stop").stdout
    done = station.run("daemon", "status", code=69)
    assert "houston daemon start" in done.stderr
    done = station.run("daemon", "status", "--json", code=69)
    assert json.loads(done.stdout)["state"] == "stopped"


def test_a_killed_daemon_is_gone_and_the_next_one_starts(station: Station) -> None:
    station.start()
    epoch = station.json("daemon", "status")[0]["epoch"]
    station.kill_daemon()
    station.run("daemon", "status", code=69)
    assert (station.home / "run" / "control.sock").exists(), "its sockets lie there still"
    station.start()
    assert station.json("daemon", "status")[0]["epoch"] == epoch + 1


CONTENTS = ["", "{}", "garbage", '{"pid": 1, "since": "then"}']


@pytest.mark.parametrize("content", sampled(CONTENTS, 1))
def test_what_the_lock_file_says_decides_nothing(station: Station, content: str) -> None:
    station.home.mkdir()
    (station.home / "daemon.lock").write_text(content)
    station.run("daemon", "status", code=69)
    station.start()
    assert owner(station)["pid"] == station.pid


@pytest.mark.slow
def test_a_copied_home_is_another_home(station: Station, tmp_path: Path) -> None:
    station.start()
    copy = Station(tmp_path / "other")
    copy.folder.mkdir()
    sockets = shutil.ignore_patterns("*.sock")
    shutil.copytree(station.home, copy.home, ignore=sockets, copy_function=_copied)
    try:
        copy.start()
        assert copy.pid != station.pid
    finally:
        copy.stop()


def _copied(file: str, to: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # the daemon runs: one was renamed meanwhile
        shutil.copy2(file, to)


@pytest.mark.parametrize("number", sampled([signal.SIGTERM, signal.SIGINT], 1))
def test_a_signal_drains_and_ends_it(station: Station, number: signal.Signals) -> None:
    process = popen(station, "daemon", "start", "--foreground")
    until(lambda: (station.home / "daemon.lock").exists() and owner_pid(station) == process.pid)
    until(lambda: station.run("daemon", "status", code=None).returncode == 0)
    process.send_signal(number)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert "ready" in log, "in the foreground the log is shown"
    assert f"draining ({number.name})" in log
    assert "ready" in (station.home / "logs" / "daemon.log").read_text(), "and kept"


def owner_pid(station: Station) -> int:
    text = (station.home / "daemon.lock").read_text()
    return int(json.loads(text)["pid"]) if text else 0


@pytest.mark.slow
def test_in_the_foreground_beside_a_running_one(station: Station) -> None:
    station.start()
    said = station.run("daemon", "start", "--foreground").stdout
    assert "already running" in said


def test_a_restart_is_another_process_on_the_same_home(station: Station) -> None:
    station.start()
    pid = station.pid
    station.run("daemon", "restart")
    assert station.pid != pid
    until(lambda: not alive(pid))


@pytest.mark.slow
def test_a_frozen_daemon_is_let_go_on_and_drains(station: Station) -> None:
    """A stopped process (SIGSTOP) neither answers nor drains; a stop lets it go on first."""
    station.start()
    pid = station.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: process_state(pid) == "T")
    done = station.run("daemon", "stop", timeout=200)
    assert f"stopped (pid {pid}): a signal had frozen it" in done.stdout
    until(lambda: not alive(pid))
    station.start()


@pytest.mark.slow
def test_a_start_beside_a_daemon_that_hangs_says_so(station: Station) -> None:
    station.environment["HOUSTON__DAEMON__DRAIN_SECONDS"] = "0.5"
    station.start()
    pid = station.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        done = station.run("daemon", "start", code=75, timeout=30)
        assert f"(pid {pid}) holds the home" in done.stderr
        assert "has not answered" in done.stderr
        assert "next: houston daemon stop" in done.stderr
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_start_beside_a_stop_starts(station: Station) -> None:
    """It finds a daemon that ends before it answers: then it is the one that starts."""
    station.home.mkdir()
    lock = HomeLock(Home(station.home))
    assert lock.take(HomeOwner(os.getpid(), "now")) is None
    starting = popen(station, "daemon", "start")
    time.sleep(1.5)
    lock.release()
    said = starting.communicate(timeout=60)
    assert starting.returncode == 0, said
    assert str(station.pid) in said[0]


@pytest.mark.slow
def test_an_interpreter_that_cannot_be_run_is_not_blamed_on_the_home(station: Station) -> None:
    (station.folder / "python").write_text("")
    code = (
        "import sys\nfrom houston_shared.command import main\n"
        "import houston_daemon.service.daemon_control\n"
        "sys.executable = sys.argv[1]\n"
        "sys.exit(main(['daemon', 'start']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(station.folder / "python")],
        env=station.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "could not be started: Permission denied" in done.stderr
    assert str(station.folder / "python") in done.stderr


@pytest.mark.parametrize(
    ("home", "names"),
    [("/proc/nowhere", "/proc/nowhere"), ("{folder}/a-file", "a-file")],
)
def test_a_home_that_cannot_be_used(station: Station, home: str, names: str) -> None:
    (station.folder / "a-file").write_text("")
    station.environment["HOUSTON_HOME"] = home.format(folder=station.folder)
    done = station.run("daemon", "start", code=1)
    assert names in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("houston: ")


def test_a_start_that_fails_says_the_line_of_the_log(station: Station) -> None:
    station.home.mkdir()
    (station.home / "houston.db").write_bytes(b"this is no database, " * 400)
    done = station.run("daemon", "start", code=None)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    said = done.stderr.removeprefix("houston: ").splitlines()[0]
    log = (station.home / "logs" / "daemon.log").read_text()
    assert said.split(". ")[0] in log, (said, log)
    station.run("daemon", "status", code=69)
    (station.home / "houston.db").unlink()
    station.start()


@pytest.mark.slow
def test_a_daemon_that_cannot_even_begin_says_why(station: Station) -> None:
    """Something that breaks the interpreter's start shows in the log and in the command."""
    broken = station.folder / "broken"
    broken.mkdir()
    (broken / "zmq.py").write_text("raise ImportError('libzmq is of another world')\n")
    station.home.mkdir()
    environment = dict(station.environment)
    code = (
        "import os, sys\nfrom houston_shared.command import main\n"
        "import houston_daemon.service.daemon_control\n"
        "os.environ['PYTHONPATH'] = sys.argv[1]\n"
        "sys.exit(main(['daemon', 'start']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(broken)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=station.folder,
        check=False,
    )
    assert done.returncode == 1
    assert "libzmq is of another world" in done.stderr


@pytest.mark.slow
@needs_root
def test_only_the_owner_of_a_home_restarts_its_daemon(station: Station) -> None:
    """An operator who is somebody else (here: root, of another's home) ends nothing."""
    station.start()
    before = station.pid
    os.chown(station.home, NOBODY, -1)
    try:
        said = station.run("daemon", "restart", code=1).stderr
        assert "Only nobody" in said
        assert "Traceback" not in said
    finally:
        os.chown(station.home, 0, -1)
    assert station.pid == before, "it runs on"


def test_hang_up_opens_the_log_again(station: Station) -> None:
    station.start()
    log = station.home / "logs" / "daemon.log"
    log.rename(log.with_name("moved.log"))
    os.kill(station.pid, signal.SIGHUP)
    until(lambda: log.exists() and "opened again" in log.read_text())
    assert station.json("daemon", "status")[0]["state"] == "running"


def test_the_log_is_shown_and_followed(station: Station) -> None:
    station.start()
    assert "ready" in station.run("daemon", "logs").stdout
    assert len(station.run("daemon", "logs", "-n", "1").stdout.splitlines()) == 1
    following = popen(station, "daemon", "logs", "-f", "-n", "1")
    try:
        assert following.stdout
        assert "ready" in following.stdout.readline(), "it has begun: what follows is new"
        os.kill(station.pid, signal.SIGHUP)
        assert "opened again" in following.stdout.readline()
    finally:
        following.send_signal(signal.SIGINT)
        try:
            following.wait(60)
        finally:
            following.kill()
    assert following.returncode == 130


def test_logs_without_a_daemon_ever(station: Station) -> None:
    assert "houston daemon start" in station.run("daemon", "logs", code=66).stderr


@pytest.mark.slow
def test_systemd_hears_of_ready_and_stopping(station: Station, tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(address))
        systemd.settimeout(60)
        station.environment["NOTIFY_SOCKET"] = str(address)
        station.start()
        station.stop()
        systemd.settimeout(1)
        heard = []
        try:
            while True:
                heard.append(systemd.recv(100).decode())
        except TimeoutError:
            pass
    assert next(said for said in heard if "=1" in said) == "READY=1"
    assert any(said.startswith("STOPPING=1") for said in heard)


@pytest.mark.slow
def test_a_long_home_has_its_sockets_elsewhere(station: Station) -> None:
    station.environment["HOUSTON_HOME"] = str(station.home / ("deep/" * 20) / "home")
    station.environment.pop("XDG_RUNTIME_DIR", None)
    try:
        done = station.run("daemon", "start")
        assert "sockets are in" in done.stderr
        assert station.json("daemon", "status")[0]["state"] == "running"
        (station.folder / "runtime").mkdir()
        station.environment["XDG_RUNTIME_DIR"] = str(station.folder / "runtime")
        assert station.json("daemon", "status")[0]["state"] == "running"
        assert "already running" in station.run("daemon", "start").stdout
        assert not any((station.folder / "runtime").iterdir())
    finally:
        station.stop()
