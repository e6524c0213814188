"""F7: two daemons on one home. Exactly one lives, whatever a race, a stale name or a copy does."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from houston_daemon.service import daemon_control
from houston_shared.home import Home
from houston_shared.home_lock import find_running_daemon
from tests.faults import workloads
from tests.faults.daemon_under_test import Ground
from tests.faults.final_checks import until_over, wrong
from tests.support.station import Station

AT_ONCE = 6
ROUNDS = 4


def rush(ground: Ground, count: int) -> list[tuple[subprocess.Popen[bytes], int]]:
    """Start daemons at once; each with the pipe on which it says how it went."""
    started = []
    for _ in range(count):
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "houston_daemon.service.daemon_process"]
        command += ["--home", str(ground.home.path), "--ready-fd", str(writing)]
        command += ["--config", str(ground.home.configuration)]
        process = subprocess.Popen(
            command,
            pass_fds=(writing,),
            env=ground.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(writing)
        started.append((process, reading))
    return started


@pytest.mark.slow
def test_of_many_starts_at_once_exactly_one_daemon_lives(ground: Ground) -> None:
    """Over and over, each time right after the last one was killed."""
    ground.home.logs.mkdir(parents=True)
    winner: subprocess.Popen[bytes] | None = None
    for _ in range(ROUNDS):
        if winner:
            winner.send_signal(signal.SIGKILL)
        reports = []
        rushed = rush(ground, AT_ONCE)
        for process, reading in rushed:
            reports.append((process, daemon_control.wait_for_readiness(reading, 60)))
            os.close(reading)
        won = [process for process, report in reports if report and report.ready]
        assert len(won) == 1, reports
        assert find_running_daemon(ground.home).pid == won[0].pid  # type: ignore[union-attr]
        for process, report in reports:
            if process is not won[0]:
                assert process.wait(60) == 0
                assert report
                assert report.running
        if winner:
            winner.wait(60)
        winner = won[0]
    ground.process = winner
    (rollout,) = ground.rollouts(workloads.null(ground, 10))
    until_over(ground)
    assert ground.stop() == 0
    assert wrong(ground) == []
    assert rollout in ground.states()


def test_a_stale_name_in_the_lock_hurts_nobody(station: Station) -> None:
    """The process that has the number now is another one: it is neither asked nor ended."""
    station.home.mkdir()
    lock = station.home / "daemon.lock"
    with subprocess.Popen(["sleep", "600"]) as bystander:
        try:
            stale = f'{{"pid": {bystander.pid}, "since": "2020-01-01T00:00:00Z"}}'
            lock.write_text(stale)
            assert "no daemon runs" in station.run("daemon", "stop").stdout
            lock.write_text(stale)
            station.start()
            assert station.pid != bystander.pid
            assert bystander.poll() is None
        finally:
            bystander.kill()


@pytest.mark.slow
def test_a_copy_made_while_it_runs_is_a_home_of_its_own(ground: Ground, tmp_path: Path) -> None:
    ground.started()
    ground.rollouts(workloads.null(ground, 60), 2)
    ground.until(lambda: ground.query("SELECT 1 FROM steps WHERE step > 3"), 60, "steps")
    copied = Home(tmp_path / "copy")
    shutil.copytree(ground.home.path, copied.path, ignore=shutil.ignore_patterns("*.sock"))
    copy = Station(tmp_path)
    copy.home = copied.path
    copy.environment["HOUSTON_HOME"] = str(copied.path)
    done = copy.run("daemon", "start", code=None)
    if done.returncode == 0:
        # A copy of a database in motion may be unsound; then it was refused with a sentence.
        assert copy.pid != ground.pid
        copy.stop()
    else:
        assert "houston verify" in done.stderr
    assert ground.lives
    until_over(ground)
    assert wrong(ground) == []
    assert ground.stop() == 0
