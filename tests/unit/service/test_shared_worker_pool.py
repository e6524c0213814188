"""Which worker a short rollout is given to, and what a death there costs each of its rollouts."""

import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from houston_daemon.agent.shared_worker_line import RolloutExited
from houston_daemon.recorder.live_workers import WorkerSilence
from houston_daemon.recorder.recorder_handle import Assignment
from houston_daemon.service import shared_workers
from houston_daemon.service.fork_server import (
    LINE_DESCRIPTOR,
    StartWorker,
    WorkerEnded,
    WorkerStarted,
)
from houston_daemon.service.shared_workers import SharedWorkers
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.supervisor_queries import ResumableRollout
from houston_daemon.service.worker_pool import WORKER_DEATHS_LIMIT, WorkerPool
from houston_daemon.service.worker_spawner import WorkerLost, WorkerSpawner
from houston_shared.records import RolloutSpec, TaskRecord

TASK = TaskRecord(name="t", folder="/", definition="", instructions="")
SHARED = """
import json, os, socket, sys, time

line = socket.socket(fileno=int(sys.argv[sys.argv.index("--line") + 1]))
while data := line.recv(65536):
    rollout = json.loads(data)["rollout"]
    lease = json.loads(data)["lease"]
    if rollout.startswith("deadly"):
        print("the moon fell on", rollout, flush=True)
        os._exit(3)
    left = {"type": "RolloutExited", "rollout": rollout, "lease": lease}
    if rollout.startswith("raises"):
        left |= {"code": 1, "problem": "ValueError: the moon is full"}
    if not rollout.startswith("stays"):
        line.send(json.dumps(left).encode())
"""
"""A worker that many share: what becomes of a rollout there is told by its name."""
OWN = """
import sys, time
if sys.argv[sys.argv.index("--rollout") + 1].startswith("deadly"):
    sys.exit("the moon fell again")
time.sleep(60)
"""


class Assigning:
    """The part of the recorder that gives rollouts to workers and hears of their end."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.leases: dict[str, int] = {}
        self.failures: dict[str, str] = {}
        self.ended: list[tuple[str, int]] = []

    def runnable(self) -> list[str]:
        return list(self.waiting)

    def assign(self, rollout: str) -> Assignment:
        self.leases[rollout] = self.leases.get(rollout, 0) + 1
        self.waiting.remove(rollout)
        spec = RolloutSpec(
            rollout=rollout,
            task=TASK,
            engine="e",
            engine_settings={},
            shares_worker=not rollout.startswith("alone"),
        )
        return Assignment(spec, self.leases[rollout])

    def worker_ended(self, rollout: str, lease: int, failure: str) -> None:
        self.ended.append((rollout, lease))
        if failure:
            self.failures[rollout] = failure
        elif not rollout.startswith("ends"):
            self.waiting.append(rollout)


class Pool:
    """A pool with real processes, on a clock of the test's."""

    def __init__(self, folder: Path, capacity: int = 16) -> None:
        (folder / "shared_program.py").write_text(SHARED)
        (folder / "own_program.py").write_text(OWN)
        self.recorder = Assigning()
        self.inbox = SupervisorInbox()
        self.births = WorkerSpawner(self.inbox, "", folder / "fork_server.log")
        self.folder = folder
        self.now = 0.0
        self.url = ""
        self.steps = 0
        self.own: list[str] = []
        """Rollouts that were given a worker of their own."""
        self.shared = SharedWorkers(
            self._start,
            lambda _, urls: ("--engine-url", urls["e"]),
            self._log,
            self.inbox,
            capacity,
        )
        self.pool = WorkerPool(
            self.recorder,  # type: ignore[arg-type]
            self._launch,
            self._log,
            64,
            shared=self.shared,
        )

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _start(self, name: str, arguments: tuple[str, ...], line: socket.socket) -> None:
        words = ["--line", str(LINE_DESCRIPTOR), *arguments]
        self.births.start_worker(self._request(name, 0, "shared_program", words), line)

    def _launch(self, assignment: Assignment, urls: Mapping[str, str]) -> None:
        rollout = assignment.spec.rollout
        self.own.append(rollout)
        words = ["--rollout", rollout]
        self.births.start_worker(self._request(rollout, assignment.lease, "own_program", words))

    def _request(self, name: str, lease: int, module: str, words: list[str]) -> StartWorker:
        log = str(self._log(name))
        return StartWorker(name, lease, module, words, log=log, log_bytes=1_000_000)

    def fill(self, *rollouts: str) -> None:
        """Queue rollouts and start what may start."""
        self.recorder.waiting += rollouts
        known = {*self.recorder.waiting, *self.recorder.leases}
        standings = {rollout: ResumableRollout(("e",), self.steps, False) for rollout in known}
        self.pool.start_runnable(self.now, standings, lambda engine: self.url)

    def until(self, done: Callable[[], bool]) -> None:
        """Handle events until `done`; the limit only bounds a hanging test."""
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, "it did not happen"
            for event in self.inbox.wait(0.1):
                if isinstance(event, WorkerStarted):
                    self.pool.on_started(event)
                elif isinstance(event, WorkerEnded):
                    self.pool.on_ended(event, self.now, {})
                elif isinstance(event, RolloutExited):
                    self.pool.on_left(event, self.now, {})
                elif isinstance(event, WorkerLost):
                    self.pool.on_lost(event, self.now)

    def clear(self) -> None:
        self.births.close()

    @property
    def running(self) -> set[str]:
        return set(self.pool._running)

    def worker_of(self, rollout: str) -> str:
        return self.pool._running[rollout].shared


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pool]]:
    made: list[Pool] = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def new(**options: int) -> Pool:
        made.append(Pool(tmp_path, **options))
        return made[-1]

    yield new
    for each in made:
        each.clear()


def test_a_worker_takes_as_many_as_it_may_and_then_there_is_another(
    make: Callable[..., Pool],
) -> None:
    pool = make(capacity=3)
    pool.fill(*(f"stays{n}" for n in range(7)))
    assert [pool.worker_of(f"stays{n}") for n in range(7)] == [
        *["shared.1"] * 3,
        *["shared.2"] * 3,
        "shared.3",
    ]
    pool.until(lambda: len(pool.shared.pids) == 3)
    assert {pool.pool._running[f"stays{n}"].pid for n in range(7)} == {*pool.shared.pids.values()}


def test_one_worker_runs_one_rollout_after_another(make: Callable[..., Pool]) -> None:
    pool = make(capacity=2)
    for number in range(20):
        pool.fill(f"ends{number}")
        pool.until(lambda: not len(pool.pool))
    pool.fill()
    assert list(pool.shared.pids) == ["shared.1"]
    assert pool.recorder.ended == [(f"ends{number}", 1) for number in range(20)]


def test_a_silent_rollout_of_this_daemon_is_not_taken_for_one_of_an_earlier(
    make: Callable[..., Pool],
) -> None:
    """Its worker may only be starved; the end of the process says how it ended."""
    pool = make()
    pool.fill("stays", "alone")
    assert pool.own == ["alone"] and pool.worker_of("stays") == "shared.1"
    silent = dict.fromkeys(pool.running, WorkerSilence(1, 10_000.0))
    pool.pool.end_silent(silent, pool.now)
    pool.fill()
    assert pool.recorder.ended == []


def test_with_room_for_one_nothing_is_shared(make: Callable[..., Pool]) -> None:
    pool = make(capacity=1)
    pool.fill("stays1", "stays2")
    assert pool.own == ["stays1", "stays2"]


def test_who_may_not_share_has_its_own(make: Callable[..., Pool]) -> None:
    pool = make()
    pool.fill("alone", "stays")
    assert pool.own == ["alone"]
    assert pool.worker_of("stays") == "shared.1"


def test_rollouts_of_an_engine_that_moved_go_to_another_worker(make: Callable[..., Pool]) -> None:
    pool = make()
    pool.url = "http://127.0.0.1:1/v1"
    pool.fill("stays1")
    pool.url = "http://127.0.0.1:2/v1"
    pool.fill("stays2")
    assert (pool.worker_of("stays1"), pool.worker_of("stays2")) == ("shared.1", "shared.2")
    pool.until(lambda: len(pool.shared.pids) == 2)
    pool.pool.end(signal.SIGTERM, "e", other_than=pool.url)
    pool.until(lambda: pool.running == {"stays2"})
    assert pool.pool.restarts == 0, "asked to leave: no death"


def test_who_kills_its_worker_is_alone_with_its_next_and_fails_alone(
    make: Callable[..., Pool],
) -> None:
    pool = make()
    others = ["stays1", "stays2"]
    pool.fill(*others, "deadly")
    pool.until(lambda: not pool.running)
    pool.fill()
    for _ in range(WORKER_DEATHS_LIMIT - 1):
        pool.now += 60
        pool.fill()
        pool.until(lambda: "deadly" not in pool.running)
    pool.fill()
    assert "the moon fell again" in pool.recorder.failures["deadly"]
    assert pool.running == set(others)
    assert [pool.recorder.leases[one] for one in others] == [2, 2], "they died once, with it"
    assert not pool.recorder.failures.keys() & set(others)
    assert sorted(set(pool.own)) == ["deadly", *others]


def test_the_status_says_what_a_shared_worker_died_of(make: Callable[..., Pool]) -> None:
    pool = make()
    pool.fill("stays", "deadly")
    pool.until(lambda: not pool.running)
    candidate = {"stays": ResumableRollout(("e",), 0, False)}
    said = pool.pool.troubles(pool.now, candidate)["worker of stays"]
    assert "it was one of 2 in the worker shared.1; the moon fell on deadly" in said


def test_what_one_raises_is_a_death_of_its_own_only(make: Callable[..., Pool]) -> None:
    pool = make()
    pool.fill("stays", "raises")
    pool.until(lambda: pool.running == {"stays"})
    assert pool.pool.restarts == 1
    assert pool.pool.next_due(pool.now) == 1.0
    pool.fill()
    pool.now = 2.0
    pool.fill()
    assert pool.own == ["raises"]
    assert pool.recorder.leases == {"stays": 1, "raises": 2}


def test_all_are_lost_with_the_fork_server_and_none_is_blamed(make: Callable[..., Pool]) -> None:
    pool = make()
    pool.fill("stays1", "stays2")
    pool.until(lambda: bool(pool.shared.pids))
    assert pool.births._process
    pool.births._process.kill()
    pool.until(lambda: not pool.running)
    pool.now = 2.0
    pool.fill()
    assert pool.worker_of("stays1") == pool.worker_of("stays2") == "shared.2"
    assert pool.recorder.leases == {"stays1": 2, "stays2": 2}


def test_a_worker_without_rollouts_is_let_go_after_a_while(make: Callable[..., Pool]) -> None:
    pool = make()
    pool.fill("ends")
    pool.until(lambda: not len(pool.pool) and bool(pool.shared.pids))
    pool.now = shared_workers.IDLE_SECONDS - 1
    pool.fill()
    assert "shared.1" in pool.shared
    pool.now = shared_workers.IDLE_SECONDS + 1
    pool.fill()
    pool.until(lambda: "shared.1" not in pool.shared)
    assert pool.pool.restarts == 0
    pool.fill("stays")
    assert pool.worker_of("stays") == "shared.2"


def test_a_worker_is_replaced_after_many_rollouts(
    make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_workers, "MAX_WORKER_ROLLOUTS", 3)
    pool = make()
    for number in range(4):
        pool.fill(f"ends{number}")
        pool.until(lambda: not len(pool.pool))
        pool.fill()
    assert len(pool.recorder.ended) == 4
    pool.until(partial(lambda name: name not in pool.shared, "shared.1"))
    assert "shared.2" in pool.shared
