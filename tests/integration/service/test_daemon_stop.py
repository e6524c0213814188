"""A daemon ends whatever it is in the middle of, and the next one goes on from there."""

import json
import os
import signal
import time
from contextlib import ExitStack

import pytest

from tests.support.busy_daemons import HUNG, LEAVING, STUCK, frozen, left
from tests.support.station import Station, alive
from tests.support.tiers import sampled

SLEEPS = [{"thought": "", "calls": [{"name": "sleep", "arguments": {"sleep_time": 600}}]}]
BOUND = 60
"""Seconds that only bound a hanging test; bench/leaving.py has the figures."""


def drained_within(station: Station, seconds: float) -> None:
    station.environment["HOUSTON__DAEMON__DRAIN_SECONDS"] = str(seconds)


@pytest.mark.parametrize("scenario", sampled(LEAVING, 2))
def test_one_signal_ends_it(station: Station, scenario: str) -> None:
    # What drains has all the time that it needs; what cannot uses up whatever it is given.
    drained_within(station, 4 if scenario in HUNG else 15 if scenario in STUCK else BOUND)
    with ExitStack() as later:
        LEAVING[scenario](station, later)
        pid = owner(station)
        os.kill(pid, signal.SIGTERM)
        station.until(lambda: not alive(pid), BOUND, f"the daemon ends: {scenario}")
    log = (station.home / "logs" / "daemon.log").read_text()
    assert ("cut short" in log) == (scenario in HUNG)
    assert ("ended with exit code 0" in log) == (scenario not in HUNG)

    def ended() -> bool:
        """Without waiting for the tethered ones: the kernel ends them one after the other."""
        return all("serves.py" in line and scenario in HUNG for line in left(station))

    station.until(ended, BOUND, "workers, fork server and engine end with it")
    assert not station.query("SELECT 1 FROM rollouts WHERE state = 'failed' AND engine != 'own'")


@pytest.mark.slow
def test_a_second_signal_ends_one_that_hangs(station: Station) -> None:
    drained_within(station, 600)
    with ExitStack() as later:
        LEAVING["a supervisor that hangs"](station, later)
        pid = owner(station)
        while alive(pid):  # signals that come too close together are one
            os.kill(pid, signal.SIGTERM)
            time.sleep(0.3)
    assert "cut short" in (station.home / "logs" / "daemon.log").read_text()
    drained_within(station, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "seconds", "says"),
    [
        ("frozen", BOUND, "a signal had frozen it"),
        ("a recorder that hangs", 4, "it did not answer"),
        ("a supervisor that hangs", 8, "it did not drain"),
    ],
)
def test_a_stop_ends_a_daemon_that_does_not_answer(
    station: Station, scenario: str, seconds: float, says: str
) -> None:
    """seconds: a quarter of them, 2 at most, are for the answer; what can drain needs no limit."""
    drained_within(station, seconds)
    with ExitStack() as later:
        {**LEAVING, "frozen": frozen}[scenario](station, later)
        pid = owner(station)
        said = station.run("daemon", "stop", timeout=60).stdout
    assert says in said
    assert f"(pid {pid})" in said
    # It has let the home go, for which the stop waits; its interpreter ends a moment later.
    station.until(lambda: not alive(pid), BOUND)


@pytest.mark.slow
def test_what_died_is_told_from_what_was_stopped(station: Station) -> None:
    def lsb() -> tuple[int, str]:
        done = station.run("daemon", "status", "--lsb", "--json", code=None)
        return done.returncode, json.loads(done.stdout)["state"]

    assert lsb() == (3, "stopped")
    station.start()
    assert lsb() == (0, "running")
    pid = station.pid
    os.kill(pid, signal.SIGSTOP)
    assert lsb() == (4, "silent")
    os.kill(pid, signal.SIGKILL)
    station.until(lambda: not alive(pid))
    assert lsb() == (1, "dead")
    said = station.run("daemon", "status", code=69).stderr
    assert f"pid {pid}" in said
    assert "did not end cleanly" in said
    station.start()
    station.stop()
    assert lsb() == (3, "stopped")


@pytest.mark.slow
def test_a_start_says_that_the_daemon_before_died(station: Station) -> None:
    """In its output, in the log and in the audit; once, and not after a clean stop."""
    assert "did not end" not in station.run("daemon", "start").stdout
    (rollout,) = station.rollout(station.task(sandbox="none"), station.script(SLEEPS))
    station.until(lambda: station.show(rollout)["state"] == "running")
    dead = station.pid
    station.kill_daemon()
    for start, told in (("after a kill", True), ("after a stop", False)):
        said = station.run("daemon", "start").stdout
        assert ("did not end cleanly" in said) == told, start
        if told:
            assert f"(pid {dead}, since " in said
            assert "1 rollout continues" in said
            assert said.splitlines()[1].strip() in (station.home / "logs/daemon.log").read_text()
        station.stop()
    starts = [line["text"] for line in station.json("log", "--audit") if line["did"] == "daemon"]
    assert [f"the one before (pid {dead}, since " in text for text in starts] == [
        False,
        True,
        False,
    ]


def owner(station: Station) -> int:
    """The daemon's pid from its lock: a daemon that hangs cannot be asked."""
    return int(json.loads((station.home / "daemon.lock").read_text())["pid"])
