"""A trainer's first process: passes on the wish to end, and takes everything along when the daemon
dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.station import alive
from tests.support.tiers import sampled

CHILD = "houston_daemon.service.trainer_child"
LAUNCHER = """
import subprocess, sys, time
rank = subprocess.Popen(["sleep", "600"])
open(sys.argv[1], "w").write(str(rank.pid))
time.sleep(600)
"""
DAEMON = f"""
import os, subprocess, sys, time
child = [sys.executable, "-m", "{CHILD}", str(os.getpid()), "5"]
command = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
print(subprocess.Popen([*child, *command], start_new_session=True).pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(15, signal.SIG_IGN)
print(1, flush=True)
time.sleep(600)
"""


def until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_nothing_outlives_a_daemon_that_was_killed(tmp_path: Path) -> None:
    told = tmp_path / "rank"
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, LAUNCHER, str(told)], stdout=subprocess.PIPE, text=True
    )
    assert daemon.stdout is not None
    first = int(daemon.stdout.readline())
    until(lambda: told.exists() and told.read_text() != "")
    rank = int(told.read_text())
    daemon.kill()
    daemon.wait()
    daemon.stdout.close()
    until(lambda: not alive(first) and not alive(rank))


def run(*command: str, seconds: float = 60.0) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", CHILD, str(os.getpid()), str(seconds), *command]
    return subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, text=True)


def test_it_ends_as_its_command_does() -> None:
    assert run("sh", "-c", "exit 3").wait(20) == 3
    assert run("sh", "-c", "kill -9 $$").wait(20) == 128 + signal.SIGKILL


def test_the_wish_to_end_is_passed_on_and_then_enforced() -> None:
    polite = run("sh", "-c", "trap 'exit 7' TERM; echo; while true; do sleep 0.05; done")
    assert polite.stdout is not None
    polite.stdout.readline()
    polite.terminate()
    assert polite.wait(20) == 7
    stubborn = run(sys.executable, "-c", STUBBORN, seconds=0.3)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    stubborn.terminate()
    assert stubborn.wait(20) == -signal.SIGKILL, "with everything of its session"


@pytest.mark.parametrize("step", sampled([8, 2], 1))
def test_a_wish_to_end_while_the_command_is_started_leaves_nobody_behind(step: int) -> None:
    for delay in (tenths / 10_000 for tenths in range(0, 40, step)):
        child = run("sleep", "600")
        while not _is_tied(child.pid):  # the next moments count
            pass
        time.sleep(delay)
        child.terminate()
        assert child.wait(20) in (-signal.SIGTERM, 128 + signal.SIGTERM)
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)


def _is_tied(pid: int) -> bool:
    """Whether it would learn of the death of the daemon: next it starts its command."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(one.split()[1], 16) for one in lines if one.startswith("SigCgt"))
    return bool(caught >> (signal.SIGUSR1 - 1) & 1)
