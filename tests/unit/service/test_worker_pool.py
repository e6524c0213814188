"""Workers: real processes, bounded in number, restarted with backoff, failed at last."""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from houston_daemon.recorder.live_workers import WorkerSilence
from houston_daemon.recorder.recorder_handle import Assignment
from houston_daemon.service.daemon_log import LOG_CHECK_SECONDS, DaemonLogs, LogFile, read_last_line
from houston_daemon.service.fork_server import (
    LOST_EXIT_CODE,
    MESSAGE_BYTES,
    ForkServer,
    ForkServerPing,
    ForkServerPong,
    StartWorker,
    WorkerEnded,
    WorkerNotStarted,
    WorkerStarted,
)
from houston_daemon.service.log_rotation import rotated_logs
from houston_daemon.service.ray_actor import WorkerActor, _Worker
from houston_daemon.service.ray_messages import WorkerOutput
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.supervisor_queries import ResumableRollout
from houston_daemon.service.worker_pool import (
    STARTING_WORKERS_LIMIT,
    WORKER_DEATHS_LIMIT,
    WorkerPool,
)
from houston_daemon.service.worker_spawner import FAILED_START_SECONDS, WorkerLost, WorkerSpawner
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec, TaskRecord
from tests.support.station import alive, command_line

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
        (folder / "worker_program.py").write_text(program)
        self.recorder = Assigning(rollouts)
        self.inbox = SupervisorInbox()
        self.births = WorkerSpawner(self.inbox, "", folder / "fork_server.log")
        self.folder = folder
        self.steps = 0
        self.engine_url: str | None = ""
        self.urls: list[str] = []
        self.now = 0.0
        self.workers = WorkerPool(
            self.recorder,  # type: ignore[arg-type]
            self.launch,
            lambda rollout: folder / f"{rollout}.log",
            limit,
        )

    def launch(self, assignment: Assignment, urls: Mapping[str, str]) -> None:
        self.urls.append(urls["e"])
        rollout = assignment.spec.rollout
        self.births.start_worker(
            StartWorker(
                rollout=rollout,
                lease=assignment.lease,
                module="worker_program",
                arguments=["--rollout", rollout],
                log=str(self.folder / f"{rollout}.log"),
                log_bytes=1_000_000,
            )
        )

    @property
    def standings(self) -> dict[str, ResumableRollout]:
        known = [*self.recorder.waiting, *self.recorder.leases]
        return {rollout: ResumableRollout(("e",), self.steps, False) for rollout in known}

    def fill(self) -> None:
        self.workers.start_runnable(self.now, self.standings, lambda engine: self.engine_url)

    def until(
        self, done: Callable[[], bool], kinds: tuple[type, ...] = (WorkerStarted, WorkerEnded)
    ) -> None:
        """Handle events of these kinds until `done`; the limit only bounds a hanging test."""
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, "it did not happen"
            for event in self.inbox.wait(0.2):
                if isinstance(event, WorkerStarted) and WorkerStarted in kinds:
                    self.workers.on_started(event)
                elif isinstance(event, WorkerEnded) and WorkerEnded in kinds:
                    self.workers.on_ended(event, self.now, self.standings)
                elif isinstance(event, WorkerLost):
                    self.workers.on_lost(event, self.now)

    def death(self) -> None:
        """Start what may start and wait until nothing runs."""
        self.fill()
        self.until(lambda: not len(self.workers))
        self.fill()  # tells the recorder; it is too early for the next start

    def clear(self) -> None:
        self.workers.end(signal.SIGKILL)
        self.until(lambda: not len(self.workers))


STAY = "import time\ntime.sleep(60)"
DIE = "import sys\nprint('the disk of', 'the moon')\nsys.exit(3)"
LEAVE = "pass"
RAISE = "raise ValueError('the moon is full')"
SAY = "raise SystemExit('the moon is full')"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(program: str, rollouts: list[str], **options: int) -> Bench:
        made.append(Bench(tmp_path, program, rollouts, **options))
        return made[-1]

    yield make
    for each in made:
        each.births.close()


def test_only_a_few_start_at_once_and_the_limit_holds(bench: Callable[..., Bench]) -> None:
    some = bench(STAY, [f"r{i}" for i in range(9)], limit=6)
    some.fill()
    assert len(some.workers) == STARTING_WORKERS_LIMIT, "none has been born"
    assert sorted(some.recorder.leases) == ["r0", "r1", "r2", "r3"], "the oldest first"

    def full() -> bool:
        some.fill()
        return len(some.workers) == 6

    some.until(full)
    some.fill()
    assert len(some.workers) == 6
    some.clear()


def test_a_worker_that_dies_waits_longer_each_time_and_then_its_rollout_fails(
    bench: Callable[..., Bench],
) -> None:
    some = bench(DIE, ["r"])
    waits = []
    for _ in range(WORKER_DEATHS_LIMIT - 1):
        some.death()
        due = some.workers.next_due(some.now)
        assert due is not None
        waits.append(due - some.now)
        some.fill()
        assert not len(some.workers), "not before its time"
        some.now = due + 0.001
    some.death()
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert "the disk of the moon" in some.recorder.failures["r"]
    assert some.recorder.leases["r"] == WORKER_DEATHS_LIMIT, "a new lease for each worker"


def test_a_step_between_the_deaths_begins_the_count_again(bench: Callable[..., Bench]) -> None:
    some = bench(DIE, ["r"])
    for _ in range(2 * WORKER_DEATHS_LIMIT):
        some.steps += 1
        some.death()
        assert some.workers.next_due(some.now) == some.now + 1.0
        some.now += 2
    assert not some.recorder.failures


def test_an_end_that_cannot_be_stored_now_is_told_again(bench: Callable[..., Bench]) -> None:
    some = bench(LEAVE, ["r"])
    some.fill()
    some.recorder.full = True
    some.until(lambda: not len(some.workers))
    some.now = 10.0
    for _ in range(2):
        with pytest.raises(HoustonError, match="full"):
            some.fill()
    some.recorder.full = False
    some.fill()
    assert some.recorder.leases["r"] == 2, "it went on when there was room"
    some.clear()


def test_a_worker_that_leaves_has_not_died(bench: Callable[..., Bench]) -> None:
    some = bench(LEAVE, ["r"])
    for _ in range(2 * WORKER_DEATHS_LIMIT):
        some.death()
        some.now += 2
    assert not some.recorder.failures


def test_no_worker_while_one_of_its_engines_is_down(bench: Callable[..., Bench]) -> None:
    some = bench(STAY, ["r"])
    candidate = {"r": ResumableRollout(("e", "big"), 0, False)}
    answers: dict[str, str | None] = {"e": "", "big": None}
    some.workers.start_runnable(0.0, candidate, answers.get)
    assert not len(some.workers)
    answers["big"] = "http://127.0.0.1:2/v1"
    some.workers.start_runnable(0.0, candidate, answers.get)
    some.until(lambda: some.workers._running["r"].pid > 0)
    some.workers.end(signal.SIGTERM, "big", other_than="http://127.0.0.1:2/v1")
    assert some.workers._running["r"].end_signal is None
    some.workers.end(signal.SIGTERM, "big", other_than="http://127.0.0.1:3/v1")
    some.until(lambda: not len(some.workers))


def test_no_worker_while_the_engine_is_down_and_its_url_when_it_is_up(
    bench: Callable[..., Bench],
) -> None:
    some = bench(STAY, ["r"])
    some.engine_url = None
    some.fill()
    assert not len(some.workers)
    some.engine_url = "http://127.0.0.1:1/v1"
    some.fill()
    assert some.urls == ["http://127.0.0.1:1/v1"]
    some.workers.end(signal.SIGTERM, "e", other_than="http://127.0.0.1:1/v1")
    some.workers.end(signal.SIGTERM, "another", other_than="")
    some.until(lambda: some.workers._running["r"].pid > 0)
    assert some.workers._running["r"].end_signal is None, "neither concerned it"
    some.workers.end(signal.SIGTERM, "e", other_than="http://127.0.0.1:2/v1")
    some.until(lambda: not len(some.workers))
    assert some.workers.next_due(some.now) == 1.0, "asked to leave: no death"


@pytest.mark.parametrize(
    ("program", "said"), [(DIE, "the disk of the moon"), (RAISE, "moon is full"), (SAY, "is full")]
)
def test_what_a_dying_worker_says_is_in_its_log(
    bench: Callable[..., Bench], tmp_path: Path, program: str, said: str
) -> None:
    some = bench(program, ["r"])
    some.death()
    assert said in read_last_line(tmp_path / "r.log")
    assert some.workers.next_due(0.0) == 1.0, "it was a death"


def test_a_worker_shows_its_command_line_and_has_no_descriptor_but_its_own(
    bench: Callable[..., Bench],
) -> None:
    some = bench(STAY, ["r0", "r1"])
    some.fill()
    some.until(lambda: all(live.pid for live in some.workers._running.values()))
    for rollout, live in some.workers._running.items():
        shown = Path(f"/proc/{live.pid}")
        words = f"-m worker_program --rollout {rollout}"
        until(partial(shows, shown, words))
        until(partial(has_descriptors, shown, ["0", "1", "2"]))  # one more while it reads a module
    some.clear()


def shows(process: Path, words: str) -> bool:
    return words in command_line(process)


def has_descriptors(process: Path, numbers: list[str]) -> bool:
    return sorted(os.listdir(process / "fd")) == numbers


def test_workers_end_with_a_fork_server_that_is_killed_and_start_again(
    bench: Callable[..., Bench],
) -> None:
    some = bench(STAY, ["r0", "r1"])
    some.fill()
    some.until(lambda: all(live.pid for live in some.workers._running.values()))
    assert some.births._process
    os.kill(some.births._process.pid, signal.SIGKILL)
    some.until(lambda: not len(some.workers))
    some.now = 2.0
    some.fill()
    some.until(lambda: all(live.pid for live in some.workers._running.values()))
    assert some.recorder.leases == {"r0": 2, "r1": 2}
    some.clear()


def test_a_worker_that_cannot_be_watched_costs_no_other_and_is_tried_again(
    bench: Callable[..., Bench],
) -> None:
    some = bench(STAY, ["r0"])
    some.fill()
    some.until(lambda: all(live.pid for live in some.workers._running.values()))
    (first,), (server,) = some.workers.pids.values(), some.births.pids.values()
    usual = resource.prlimit(server, resource.RLIMIT_NOFILE)
    resource.prlimit(server, resource.RLIMIT_NOFILE, (3, usual[1]))
    some.recorder.waiting.append("r1")
    some.fill()
    some.until(lambda: len(some.workers) == 1)
    assert alive(first)
    assert some.workers.next_due(some.now) == some.now + FAILED_START_SECONDS
    resource.prlimit(server, resource.RLIMIT_NOFILE, usual)
    some.now = FAILED_START_SECONDS + 1
    some.fill()
    some.until(lambda: all(live.pid for live in some.workers._running.values()))
    assert some.recorder.leases == {"r0": 1, "r1": 2}
    assert (some.recorder.failures, some.births.restarts) == ({}, 0)
    some.clear()


def test_a_fork_server_that_cannot_fork_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line, line_of_worker = socket.socketpair()
    with ours, theirs, line:
        order = msgspec.json.encode(StartWorker("r0", 1, "m", [], "/dev/null", 1_000))
        socket.send_fds(ours, [order], [line_of_worker.fileno()])
        line_of_worker.close()
        ours.send(msgspec.json.encode(ForkServerPing()))
        ours.shutdown(socket.SHUT_WR)
        ForkServer(theirs).run()
        said = msgspec.json.decode(ours.recv(MESSAGE_BYTES), type=WorkerNotStarted)
        assert (said.rollout, said.lease) == ("r0", 1)
        assert "no more processes" in said.reason
        assert msgspec.json.decode(ours.recv(MESSAGE_BYTES), type=ForkServerPong)
        assert line.recv(1) == b"", "nobody else has the worker's descriptor"


def test_on_a_node_a_worker_that_cannot_be_forked_has_ended() -> None:
    actor, worker = WorkerActor(), _Worker()
    actor._workers["r0", 1] = worker
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.send(msgspec.json.encode(WorkerNotStarted("r0", 1, "no more processes")))
        actor._hear_fork_server(ours)
    assert worker.said.get_nowait() == WorkerOutput("it could not be forked: no more processes\n")
    assert worker.said.get_nowait() == WorkerEnded("r0", 1, LOST_EXIT_CODE)


def test_a_fork_server_that_keeps_ending_costs_no_rollout_a_death_and_is_waited_for(
    bench: Callable[..., Bench],
) -> None:
    some = bench(STAY, ["r0"])
    some.births._preload = "no_module_of_this_name"
    for loss in range(1, 8):
        some.fill()
        assert len(some.workers) == 1
        some.until(lambda: not len(some.workers))
        assert some.births.restarts == some.workers.restarts == loss
        assert some.workers.next_due(some.now) == some.now + min(60.0, 2.0 ** (loss - 1))
        some.now += 60.0
    assert some.recorder.failures == {}, "it is not the rollout's fault"
    (said,) = some.births.troubles(time.monotonic()).values()
    assert "ended 7 times in a row" in said
    assert "no_module_of_this_name" in said


def test_a_fork_server_that_does_not_answer_is_killed_and_its_workers_start_again(
    bench: Callable[..., Bench],
) -> None:
    some = bench(STAY, ["r0", "r1"], limit=2)
    some.recorder.waiting.remove("r1")
    some.fill()
    some.until(lambda: all(live.pid for live in some.workers._running.values()))
    assert some.births._process
    frozen = some.births._process.pid
    os.kill(frozen, signal.SIGSTOP)
    some.recorder.waiting.append("r1")
    some.fill()
    now = time.monotonic()
    some.births.check_alive(now)
    some.births.check_alive(now + 3600)
    assert alive(frozen), "this daemon itself may have been stopped for an hour"
    assert "silent for 6 s" in str(some.births.troubles(now))
    some.births.check_alive(now + 3605)
    some.until(lambda: not len(some.workers))
    some.now = 2.0
    some.fill()
    some.until(lambda: all(live.pid for live in some.workers._running.values()))
    assert some.recorder.leases == {"r0": 2, "r1": 2}
    some.clear()


COUNTS = r"""
import sys, time
number = 0
while True:
    sys.stderr.write(f"line {number} {'x' * (number % 50)}\n")
    sys.stderr.flush()
    number += 1
    time.sleep(0.0005)
"""


def test_a_worker_that_writes_for_hours_has_its_log_turned_over_without_a_lost_line(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    some = bench(COUNTS, ["r0"])
    log = tmp_path / "r0.log"
    own = LogFile(tmp_path / "daemon.log", 1, 3, capture=False)
    logs = DaemonLogs(own, lambda of: tmp_path / f"{of}.log", 2_000, 1_000)
    some.fill()
    some.until(lambda: bool(some.workers.pids))
    now = 0.0
    while len(rotated_logs(log)) < 5:
        now += LOG_CHECK_SECONDS
        logs.rotate_long_logs(now, {**some.workers.pids, **some.births.pids})
        time.sleep(0.02)
    (tmp_path / "moved").mkdir()
    log.rename(tmp_path / "moved" / "by-logrotate")
    logs.reopen({**some.workers.pids, **some.births.pids})
    some.until(lambda: log.exists() and log.stat().st_size > 100)
    some.clear()
    files = [*reversed(rotated_logs(log)), tmp_path / "moved" / "by-logrotate", log]
    text = "".join(file.read_text() for file in files)
    found = [int(line.split()[1]) for line in text.splitlines() if line.startswith("line ")]
    assert found == list(range(len(found)))
    assert len(found) > 100


def test_everything_ends_with_the_daemon_however_it_ends(tmp_path: Path) -> None:
    """A process starts a fork server and two workers, and is killed."""
    (tmp_path / "worker_program.py").write_text(STAY)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "import pathlib\n"
            "from houston_daemon.service.worker_spawner import WorkerSpawner\n"
            "from houston_daemon.service.supervisor_inbox import SupervisorInbox\n"
            "from houston_daemon.service.fork_server import StartWorker\n"
            "inbox = SupervisorInbox()\n"
            "births = WorkerSpawner(inbox, '', pathlib.Path(sys.argv[1] + '.fork_server'))\n"
            "for lease in (1, 2):\n"
            "    worker = StartWorker('r', lease, 'worker_program', [], sys.argv[1], 1)\n"
            "    births.start_worker(worker)\n"
            "pids = []\n"
            "while len(pids) < 2:\n"
            "    pids += [event.pid for event in inbox.wait(9)]\n"
            "print(births._process.pid, *pids, flush=True)\n"
            "inbox.wait(60)",
            str(tmp_path / "log"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert parent.stdout
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 3
    parent.kill()
    parent.wait()
    until(lambda: not any(alive(pid) for pid in pids))


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


SILENCES = {
    "nobody runs": ({}, None),
    "all have just spoken": ({"a": 0.5, "b": 1.0}, 219.0),
    "one is nearly silent for too long": ({"a": 0.5, "b": 117.0}, 103.0),
    "one has been silent for too long, and is starved": ({"a": 180.0}, None),
    "one is starved, another nearly silent for too long": ({"a": 180.0, "b": 117.0}, 103.0),
}
"""How long workers have been silent, seconds → when to look again at 100 s, the limit being 120."""


@pytest.mark.parametrize(("silent", "due"), SILENCES.values(), ids=SILENCES)
def test_a_silence_is_looked_at_when_it_reaches_the_limit(
    bench: Callable[..., Bench], silent: dict[str, float], due: float | None
) -> None:
    workers = bench(DIE, []).workers
    workers.end_silent({name: WorkerSilence(1, value) for name, value in silent.items()}, 100.0)
    assert workers.next_due(100.0) == due


LEFT_BEHIND = {
    "it has just spoken": (1.0, []),
    "it may still speak": (119.0, []),
    "it is lost": (121.0, ["r"]),
}
"""Seconds of silence of a worker that an earlier daemon started → what may be started anew."""


@pytest.mark.parametrize(("silent", "runnable"), LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_a_silent_worker_of_an_earlier_daemon_is_taken_for_ended(
    bench: Callable[..., Bench], silent: float, runnable: list[str]
) -> None:
    after = bench(DIE, [])
    after.recorder.leases["r"] = 3
    for full in (True, False):
        after.workers.end_silent({"r": WorkerSilence(3, silent)}, 100.0)
        after.recorder.full = full
        with suppress(HoustonError):
            after.workers.start_runnable(100.0, {}, lambda _: "")
    assert after.recorder.waiting == runnable, "told once"
    assert after.recorder.failures == {}
