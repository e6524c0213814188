"""What somebody takes away from a daemon that runs; one daemon for all of it."""

import os
import shutil
import signal

from tests.support.station import Station, alive


def test_a_running_daemon_goes_on_without_it_or_says_what_is_missing(station: Station) -> None:
    station.start()
    pid = station.pid

    # The sockets: bound again, so that the next command finds them.
    shutil.rmtree(station.home / "run")
    assert station.pid == pid
    assert "control.sock was removed: bound again" in station.log()

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
