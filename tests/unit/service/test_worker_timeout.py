"""A silent process is hung; one that only waits for a processor is not, as the kernel counts it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from houston_daemon.recorder import live_workers
from houston_daemon.service.worker_timeout import SilenceWatch, run_delay_seconds

LIMIT = 0.4
SPIN = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"


@pytest.fixture
def crowd() -> Iterator[list[int]]:
    """Six processes that share one processor."""
    made = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(6)]
    try:
        end = time.monotonic() + 60
        while not all(run_delay_seconds(one.pid) > 0.2 for one in made):
            assert time.monotonic() < end, "each waits for the others"
            time.sleep(0.05)
        yield [one.pid for one in made]
    finally:
        for one in made:
            one.kill()
            one.wait()


def test_a_starved_process_is_spared_and_a_stopped_one_is_not(crowd: list[int]) -> None:
    busy, stopped = crowd[0], crowd[1]
    os.kill(stopped, signal.SIGSTOP)
    silences = SilenceWatch(LIMIT)
    assert silences.noticed(busy, LIMIT / 2) and silences.noticed(stopped, LIMIT / 2)
    before = run_delay_seconds(busy)
    while run_delay_seconds(busy) < before + 2 * LIMIT:
        time.sleep(0.05)
    assert not silences.hung(busy, 2 * LIMIT), "it had no processor to say anything"
    assert silences.hung(stopped, 2 * LIMIT), "it would have said nothing with one"
    assert silences.hung(busy, 20 * LIMIT), "but not for ever"


def test_a_short_silence_is_none() -> None:
    silences = SilenceWatch(60.0)
    assert not silences.noticed(os.getpid(), 14.0)
    assert silences.noticed(os.getpid(), 16.0)
    assert not silences.hung(os.getpid(), 16.0)


@pytest.mark.parametrize(
    ("gaps", "listening", "counted"),
    [
        ([0.25, 0.25, 0.25], True, 0.75),
        ([0.25, 60.0, 0.25], True, 0.5 + live_workers.MAX_TURN_SECONDS),  # the daemon was stopped
        ([0.25, 0.25, 0.25], False, 0.0),  # it had no room to listen
    ],
)
def test_only_time_in_which_the_recorder_listens_counts(
    monkeypatch: pytest.MonkeyPatch, gaps: list[float], listening: bool, counted: float
) -> None:
    now = 1000.0
    monkeypatch.setattr(live_workers.time, "monotonic", lambda: now)
    book = live_workers.LiveWorkers()
    book.add("r", 1)
    book.note_message("r", 1, b"x")
    for gap in gaps:
        now += gap
        book.note_turn(listening)
    assert book.silences()["r"] == (1, pytest.approx(counted))
    book.note_message("r", 1, b"x")
    assert book.silences()["r"].seconds == 0
    book.add("r", 2)
    assert book.silences()["r"].lease == 2, "a successor begins anew"


def test_workers_that_have_ended_are_not_remembered_for_ever() -> None:
    """The last words of those that have just ended bring nobody back."""
    book, route = live_workers.LiveWorkers(), live_workers.WorkerRoute(None, b"x")  # type: ignore[arg-type]
    count = 2 * live_workers.ENDED_WORKERS_KEPT
    for number in range(count):
        book.add(f"r{number}", 1)
        book.remove(f"r{number}", 1)
    assert len(book._ended) == live_workers.ENDED_WORKERS_KEPT
    for number in range(count - live_workers.ENDED_WORKERS_KEPT, count):
        book.note_message(f"r{number}", 1, route)
    assert book.rollouts() == []


def test_one_that_ends_again_is_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_workers, "ENDED_WORKERS_KEPT", 2)
    book, route = live_workers.LiveWorkers(), live_workers.WorkerRoute(None, b"x")  # type: ignore[arg-type]
    for rollout, lease in (("a", 1), ("b", 1)):
        book.add(rollout, lease)
        book.remove(rollout, lease)
    book.note_message("a", 2, route)  # on another machine, by its word
    book.remove("a", 2)
    book.add("c", 1)
    book.remove("c", 1)
    assert list(book._ended) == ["a", "c"]
