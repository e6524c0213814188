"""What somebody takes away from a daemon that runs; one daemon for all of it."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.faults.injection import fault_environment
from tests.support.busy_daemons import calls, doing, worker
from tests.support.other_user import NOBODY, needs_root, open_place
from tests.support.station import Station, alive

LOGS = f"""
import os, sys
from houston_shared import command
command.main(["daemon", "logs", "--home", "/nowhere"])  # nobody may not be able to read libraries
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
sys.exit(command.main(["daemon", "logs", "--home", sys.argv[1]]))
"""


def alive_worker(station: Station, rollout: str) -> int:
    """The process of its worker; 0 while there is none."""
    try:
        return worker(station, rollout)
    except AssertionError:
        return 0


@pytest.mark.slow
def test_a_running_daemon_goes_on_without_it_or_says_what_is_missing(station: Station) -> None:
    station.environment["HOUSTON__DAEMON__SILENT_SECONDS"] = "2"
    station.start()
    pid = station.pid

    # The sockets: bound again, so that the next command finds them.
    shutil.rmtree(station.home / "run")
    assert station.pid == pid
    assert "control.sock was removed: bound again" in station.log()

    # The folder of its logs: made again at a SIGHUP, or within ten seconds without one.
    shutil.rmtree(station.home / "logs")
    said = station.run("daemon", "logs", code=1).stderr
    assert "was removed while the daemon runs. It begins a new one within 10 s." in said
    os.kill(pid, signal.SIGHUP)
    log = station.home / "logs" / "daemon.log"
    station.until(lambda: log.is_file() and "opened again" in log.read_text(), 60, "a new log")
    assert station.pid == pid

    # The process that workers are forked from, stopped: it could not tell of a worker's end.
    rollout = calls(station, ("sleep", {"sleep_time": 600}))
    doing(station, rollout, "sleep")
    first = worker(station, rollout)
    os.kill(station.process("houston_daemon.service.fork_server", f" {pid} "), signal.SIGSTOP)
    os.kill(first, signal.SIGKILL)
    station.until(lambda: alive_worker(station, rollout) not in (0, first), 60, "another worker")
    assert "the fork server has been silent for" in station.log(200)

    # A signal that stops the daemon: said at once, with what lets it go on.
    os.kill(pid, signal.SIGSTOP)
    for words in (("daemon", "status"), ("guide", rollout, "Look.")):
        said = station.run(*words, code=75).stderr
        assert "a signal has stopped it (SIGSTOP)" in said
        assert f"next: kill -CONT {pid}" in said
    os.kill(pid, signal.SIGCONT)
    assert station.pid == pid
    assert alive(pid)


@needs_root
def test_logs_are_closed_to_others_and_that_is_said() -> None:
    with open_place() as place:
        log = place / "logs" / "daemon.log"
        log.parent.mkdir()
        log.write_text("a line\n")
        for closed in (log, log.parent):
            closed.chmod(0o600)
            words = [sys.executable, "-c", LOGS, str(place)]
            done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
            assert done.returncode == 1
            assert "daemon.log cannot be read: Permission denied." in done.stderr


@pytest.mark.slow
def test_a_start_that_is_killed_names_no_line_of_an_earlier_daemon(station: Station) -> None:
    log = station.home / "logs" / "daemon.log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-01-01T00:00:00Z ERROR the disk of yesterday\n")
    before = dict(station.environment)
    station.environment |= fault_environment("supervisor.lock.before=kill")
    said = station.run("daemon", "start", code=1).stderr
    assert "The daemon ended (signal SIGKILL) before it was ready: it wrote nothing" in said
    station.environment = before
