"""What somebody takes away from a daemon that runs; one daemon for all of it."""

import os
import shutil
import signal
import subprocess
import sys

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


def test_a_running_daemon_goes_on_without_it_or_says_what_is_missing(station: Station) -> None:
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
    station.until(lambda: log.is_file() and "opened again" in log.read_text(), 20, "a new log")
    assert station.pid == pid

    # A signal that stops it: said at once, with what lets it go on.
    os.kill(pid, signal.SIGSTOP)
    start = ("rollout", "start", str(station.task()), "--engine", station.script([]))
    for words in (("daemon", "status"), start):
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
