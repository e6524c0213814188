"""Who runs on a home: one at a time, found out at once, let go however the holder ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner, find_dead_daemon, find_running_daemon

HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner
lock = HomeLock(Home(Path(sys.argv[1])))
other = lock.take(HomeOwner(os.getpid(), "then"))
child = subprocess.Popen(["sleep", "30"], close_fds=False) if "child" in sys.argv else None
print(other.pid if other else 0, child.pid if child else 0, flush=True)
time.sleep(30 if other is None else 0)
"""


def hold(home: Home, *words: str) -> tuple["subprocess.Popen[str]", int, int]:
    """A process that takes the home; who held it before (0: nobody), and its child."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home.path), *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    other, child = map(int, process.stdout.readline().split())
    return process, other, child


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_nobody_holds_a_home_that_is_not_there(tmp_path: Path) -> None:
    assert find_running_daemon(Home(tmp_path / "nowhere")) is None


def test_the_holder_is_named_and_the_second_is_told(home: Home) -> None:
    lock = HomeLock(home)
    assert lock.take(HomeOwner(os.getpid(), "now", "abc")) is None
    assert find_running_daemon(home) == HomeOwner(os.getpid(), "now", "abc")
    assert HomeLock(home).take(HomeOwner(1, "later")) == HomeOwner(os.getpid(), "now", "abc")
    lock.release()
    assert find_running_daemon(home) is None


def test_a_killed_holder_leaves_nothing_behind_even_with_a_child(home: Home) -> None:
    process, other, child = hold(home, "child")
    try:
        assert other == 0
        found = find_running_daemon(home)
        assert found and found.pid == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert find_running_daemon(home) is None, "the child does not hold it"
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_next_holder_knows_who_died_and_a_clean_end_is_no_death(home: Home) -> None:
    process, _, _ = hold(home)
    process.kill()
    process.wait()
    for leaves in (True, False):  # a start that failed leaves the name for the next one
        lock = HomeLock(home)
        assert lock.take(HomeOwner(os.getpid(), "now")) is None
        assert lock.died == HomeOwner(process.pid, "then")
        lock.release(lock.died if leaves else None)
        assert find_dead_daemon(home) == (lock.died if leaves else None)
    after = HomeLock(home)
    assert after.take(HomeOwner(os.getpid(), "now")) is None
    assert after.died is None
    after.release()


def test_of_eight_at_once_exactly_one_gets_it(home: Home) -> None:
    starting = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(home.path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    try:
        said = [int(p.stdout.readline().split()[0]) for p in starting if p.stdout]
        winners = [p.pid for p, other in zip(starting, said, strict=True) if other == 0]
        assert len(winners) == 1
        assert set(said) == {0, winners[0]}
    finally:
        for process in starting:
            process.kill()
            process.wait()


def test_looking_never_keeps_a_daemon_out(home: Home) -> None:
    home.lock_file.touch()
    looker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom pathlib import Path\nfrom houston_shared.home import Home\n"
            "from houston_shared.home_lock import find_running_daemon\nprint('go', flush=True)\n"
            "while True: find_running_daemon(Home(Path(sys.argv[1])))",
            str(home.path),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert looker.stdout and looker.stdout.readline()
        for _ in range(50):
            lock = HomeLock(home)
            assert lock.take(HomeOwner(os.getpid(), "now")) is None
            lock.release()
            time.sleep(0.002)
    finally:
        looker.kill()
        looker.wait()


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HoustonError, match="cannot be used"):
        HomeLock(Home(tmp_path / "file")).take(HomeOwner(1, ""))
