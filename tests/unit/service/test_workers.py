"""Workers: real processes, bounded in number, restarted with backoff, failed at last."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_daemon.recorder.protocol import Assignment
from houston_daemon.service.inbox import Inbox
from houston_daemon.service.progress import Standing
from houston_daemon.service.spawn import Spawned
from houston_daemon.service.workers import (
    DEATHS_LIMIT,
    STARTING_LIMIT,
    WorkerEnded,
    Workers,
    WorkerStarted,
)
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec, TaskRecord

TASK = TaskRecord(name="t", folder="/", definition="", instructions="")


class Assigning:
    """The part of the recorder that gives rollouts to workers and hears of their end."""

    def __init__(self, rollouts: list[str]) -> None:
        self.waiting = list(rollouts)
        self.leases: dict[str, int] = {}
        self.failures: dict[str, str] = {}
        self.full = False

    def runnable(self) -> list[str]:
        return list(self.waiting)

    def assign(self, rollout: str) -> Assignment:
        self.leases[rollout] = self.leases.get(rollout, 0) + 1
        self.waiting.remove(rollout)
        spec = RolloutSpec(rollout=rollout, task=TASK, engine="script:x", engine_settings={})
        return Assignment(spec, self.leases[rollout])

    def worker_ended(self, rollout: str, lease: int, failure: str) -> None:
        assert lease == self.leases[rollout]
        if self.full:
            raise HoustonError("The disk is full.")
        if failure:
            self.failures[rollout] = failure
        else:
            self.waiting.append(rollout)


class Bench:
    """Workers that run a given program instead of the loop, on a clock of the test's."""

    def __init__(self, folder: Path, program: str, rollouts: list[str], limit: int = 64) -> None:
        self.recorder = Assigning(rollouts)
        self.inbox = Inbox()
        self.folder = folder
        self.program = program
        self.steps = 0
        self.engine_url: str | None = ""
        self.urls: list[str] = []
        self.now = 0.0
        self.workers = Workers(
            self.recorder,  # type: ignore[arg-type]
            self.inbox,
            self.launch,
            lambda rollout: folder / f"{rollout}.log",
            limit,
        )

    def launch(self, assignment: Assignment, url: str) -> Spawned:
        self.urls.append(url)
        reading, writing = os.pipe()
        with (self.folder / f"{assignment.spec.rollout}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", self.program, str(writing)],
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
                start_new_session=True,
            )
        os.close(writing)
        return Spawned(process, os.pidfd_open(process.pid), reading)

    @property
    def standings(self) -> dict[str, Standing]:
        known = [*self.recorder.waiting, *self.recorder.leases]
        return {rollout: Standing("e", self.steps, False) for rollout in known}

    def fill(self) -> None:
        self.workers.fill(self.now, self.standings, lambda engine: self.engine_url)

    def until(self, done: Callable[[], bool], kinds: tuple[type, ...]) -> None:
        """Handle events of these kinds until `done`; the limit only bounds a hanging test."""
        end = time.monotonic() + 30
        while not done():
            assert time.monotonic() < end, "it did not happen"
            for event in self.inbox.take(0.2):
                if isinstance(event, WorkerStarted) and WorkerStarted in kinds:
                    self.workers.started(event)
                elif isinstance(event, WorkerEnded) and WorkerEnded in kinds:
                    self.workers.ended(event, self.now, self.standings)

    def death(self) -> None:
        """Start what may start and wait until nothing runs."""
        self.fill()
        self.until(lambda: not len(self.workers), (WorkerStarted, WorkerEnded))
        self.fill()  # tells the recorder; it is too early for the next start

    def clear(self) -> None:
        self.workers.end(signal.SIGKILL)
        self.until(lambda: not len(self.workers), (WorkerEnded,))


STAY = "import os, sys, time\nos.close(int(sys.argv[1]))\ntime.sleep(60)"
SLOW = "import time\ntime.sleep(60)"
DIE = "import sys\nprint('the disk of', 'the moon')\nsys.exit(3)"
LEAVE = "pass"


def test_only_a_few_start_at_once_and_the_limit_holds(tmp_path: Path) -> None:
    bench = Bench(tmp_path, SLOW, [f"r{i}" for i in range(9)], limit=6)
    bench.fill()
    assert len(bench.workers) == STARTING_LIMIT, "none has finished starting"
    assert sorted(bench.recorder.leases) == ["r0", "r1", "r2", "r3"], "the oldest first"
    bench.clear()

    bench = Bench(tmp_path, STAY, [f"r{i}" for i in range(9)], limit=6)

    def full() -> bool:
        bench.fill()
        return len(bench.workers) == 6

    bench.until(full, (WorkerStarted,))
    bench.fill()
    assert len(bench.workers) == 6
    bench.clear()


def test_a_worker_that_dies_waits_longer_each_time_and_then_its_rollout_fails(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, DIE, ["r"])
    waits = []
    for _ in range(DEATHS_LIMIT - 1):
        bench.death()
        due = bench.workers.next_due(bench.now)
        assert due is not None
        waits.append(due - bench.now)
        bench.fill()
        assert not len(bench.workers), "not before its time"
        bench.now = due + 0.001
    bench.death()
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert "the disk of the moon" in bench.recorder.failures["r"]
    assert bench.recorder.leases["r"] == DEATHS_LIMIT, "a new lease for each worker"


def test_a_step_between_the_deaths_begins_the_count_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, DIE, ["r"])
    for _ in range(2 * DEATHS_LIMIT):
        bench.steps += 1
        bench.death()
        assert bench.workers.next_due(bench.now) == bench.now + 1.0
        bench.now += 2
    assert not bench.recorder.failures


def test_an_end_that_cannot_be_stored_now_is_told_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LEAVE, ["r"])
    bench.fill()
    bench.recorder.full = True
    bench.until(lambda: not len(bench.workers), (WorkerStarted, WorkerEnded))
    bench.now = 10.0
    for _ in range(2):
        with pytest.raises(HoustonError, match="full"):
            bench.fill()
    bench.recorder.full = False
    bench.fill()
    assert bench.recorder.leases["r"] == 2, "it went on when there was room"
    bench.clear()


def test_a_worker_that_leaves_has_not_died(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LEAVE, ["r"])
    for _ in range(2 * DEATHS_LIMIT):
        bench.death()
        bench.now += 2
    assert not bench.recorder.failures


def test_no_worker_while_the_engine_is_down_and_its_url_when_it_is_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, STAY, ["r"])
    bench.engine_url = None
    bench.fill()
    assert not len(bench.workers)
    bench.engine_url = "http://127.0.0.1:1/v1"
    bench.fill()
    assert bench.urls == ["http://127.0.0.1:1/v1"]
    bench.workers.end(signal.SIGTERM, "e", other_than="http://127.0.0.1:1/v1")
    bench.workers.end(signal.SIGTERM, "another", other_than="")
    assert bench.inbox.take(0) in ([], [WorkerStarted("r", 1)]), "neither concerned it"
    bench.workers.end(signal.SIGTERM, "e", other_than="http://127.0.0.1:2/v1")
    bench.until(lambda: not len(bench.workers), (WorkerStarted, WorkerEnded))
    assert bench.workers.next_due(bench.now) == 1.0, "asked to leave: no death"


@pytest.mark.parametrize("wait", [True, False])
def test_a_tied_process_ends_with_its_parent(tmp_path: Path, wait: bool) -> None:
    """The parent starts a tied child and is killed, before or after the child has tied itself."""
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\nfrom pathlib import Path\n"
            "from houston_daemon.service.spawn import spawn_worker\n"
            "s = spawn_worker('http.server', ['0'], Path(sys.argv[1]), 1000)\n"
            "print(s.process.pid, flush=True)\n" + "time.sleep(60)",
            str(tmp_path / "log"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    child = int(parent.stdout.readline())
    if wait:
        until(lambda: "Serving" in (tmp_path / "log").read_text())
    parent.kill()
    parent.wait()
    until(lambda: not Path(f"/proc/{child}").exists() or "Z" in state(child))


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1]
    except FileNotFoundError:
        return "Z"


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
