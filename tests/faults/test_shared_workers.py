"""F20: a worker that runs several short rollouts keeps every promise of a worker of one.

Each scenario starts rollouts that share a worker, does something to it, to one of them or to the
daemon, and says what must be true afterwards. At the end, what workers and people saw is held
against what is stored: nothing acked is lost, doubled or altered.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_shared import wire
from tests.faults import workloads
from tests.faults.daemon_under_test import Ground, Speaker
from tests.faults.final_checks import wrong
from tests.support.station import alive
from tests.support.tiers import sampled

SHARED = "agent.shared_worker --endpoint"
OWN = "agent.rollout_worker --endpoint"
TOGETHER = 6
STEPS = 6
PARTS = {
    "before it says hello": "worker.hello.before",
    "before its head is stored": "worker.head.before",
    "when its head is stored": "worker.head.after",
    "while its steps are read": "worker.resume.before",
    "before it samples": "worker.sample.before",
    "when it has sampled": "worker.sample.asked",
    "when the sample is stored": "worker.sample.after",
    "before a call is announced": "worker.intent.before",
    "when a call is announced": "worker.intent.after",
    "when a call has run": "worker.call.after",
    "when its result is stored": "worker.result.after",
    "before a step is closed": "worker.observation.before",
    "when a step is closed": "worker.observation.after",
    "before its end is stored": "worker.moved.before",
    "when its end is stored": "worker.moved.after",
    "before the world is let go": "worker.close.before",
    "at a heartbeat": "worker.beat.before",
    "while a message is under way": "worker.send.after",
}
"""Part of a rollout → point at which its process, or it alone, comes to grief."""
MEMORY_MB = 16.0
"""What a worker may keep of the rollouts that it has left, all together."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A daemon whose null rollouts share workers; each test leaves it idle."""
    ground = Ground(tmp_path_factory.mktemp("shared") / "ground", rollouts_per_worker=16)
    try:
        ground.started()
        yield ground
    finally:
        ground.close()


def pause_of(part: str) -> float:
    """Seconds before each answer: a rollout that is over within one sends no heartbeat."""
    return 0.8 if part == "at a heartbeat" else 0.05


def begin(ground: Ground, count: int = TOGETHER, steps: int = STEPS) -> list[str]:
    """Start rollouts and wait until each has closed a step."""
    rollouts = ground.rollouts(workloads.null(ground, steps, 0.05), count)
    ground.until(lambda: all(closed(ground, one) for one in rollouts), 60, "each is at work")
    return rollouts


def closed(ground: Ground, rollout: str) -> int:
    ((steps,),) = ground.query("SELECT steps FROM rollouts WHERE id = ?", rollout)
    return int(steps)


def leases(ground: Ground, rollouts: list[str]) -> list[int]:
    rows = dict(ground.query("SELECT id, lease FROM rollouts"))
    return [rows[rollout] for rollout in rollouts]


def worker(ground: Ground) -> int:
    """The only shared worker."""
    (pid,) = ground.until(lambda: ground.own(SHARED), 60, "a shared worker")
    return pid


def finish(ground: Ground, *speakers: Speaker) -> None:
    """Everything that was started comes to its end, and everything that was acked is there."""
    ground.until(lambda: is_idle(ground), 120, "everything ends")
    assert "failed" not in ground.states().values(), ground.log()
    for speaker in speakers:
        speaker.stop()
    assert wrong(ground, *speakers) == []


# --- a worker dies --------------------------------------------------------------------------------


@pytest.mark.parametrize("part", sampled(PARTS, 3))
def test_all_go_on_when_their_worker_is_killed(shared: Ground, part: str) -> None:
    point, before = PARTS[part], len(shared.fired())
    shared.order(point, f"kill@{TOGETHER}")
    rollouts = shared.rollouts(workloads.null(shared, STEPS, pause_of(part)), TOGETHER)
    shared.until(lambda: len(shared.fired()) > before, 60, f"{point} is reached")
    finish(shared)
    assert all(closed(shared, one) == STEPS + 1 for one in rollouts)
    assert max(leases(shared, rollouts)) <= 2, "nobody died a second time"


def test_what_shared_a_dead_worker_goes_on_in_workers_of_its_own(shared: Ground) -> None:
    rollouts = begin(shared, 3, 40)
    os.kill(worker(shared), signal.SIGKILL)
    shared.until(lambda: len(shared.own(OWN)) == 3, 60, "three workers")
    log = (shared.home.logs / "daemon.log").read_text()
    assert "it was one of 3 in the worker shared." in log
    finish(shared)
    assert leases(shared, rollouts) == [2, 2, 2]


def test_a_worker_that_hangs_is_killed_and_all_go_on(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "ground", rollouts_per_worker=16)
    ground.environment["HOUSTON__DAEMON__SILENT_SECONDS"] = "6"
    try:
        ground.started()
        rollouts = begin(ground, 3, 40)
        hung = worker(ground)
        os.kill(hung, signal.SIGSTOP)
        ground.until(lambda: not alive(hung), 60, "it is killed for its silence")
        finish(ground)
        assert min(leases(ground, rollouts)) >= 2
    finally:
        ground.close()


def test_all_go_on_when_the_fork_server_is_killed(shared: Ground) -> None:
    rollouts = begin(shared, 3, 20)
    (pid,) = shared.own("service.fork_server")
    os.kill(pid, signal.SIGKILL)
    finish(shared)
    assert leases(shared, rollouts) == [2, 2, 2]


# --- one of several comes to grief ----------------------------------------------------------------


@pytest.mark.parametrize("part", sampled(PARTS, 3))
def test_what_one_raises_ends_no_other(shared: Ground, part: str) -> None:
    point, before = PARTS[part], len(shared.fired())
    shared.order(point, f"raise@{TOGETHER}")
    rollouts = shared.rollouts(workloads.null(shared, STEPS, pause_of(part)), TOGETHER)
    shared.until(lambda: len(shared.fired()) > before, 60, f"{point} is reached")
    pid = shared.fired()[-1][2]
    assert alive(pid)
    finish(shared)
    assert alive(pid), "the worker that it happened in is there still"
    assert all(closed(shared, one) == STEPS + 1 for one in rollouts)
    assert sorted(leases(shared, rollouts))[: TOGETHER - 1] == [1] * (TOGETHER - 1)


def test_what_it_raised_is_in_its_own_log(shared: Ground) -> None:
    shared.order("worker.result.after", "raise@4")
    rollouts = shared.rollouts(workloads.null(shared, STEPS, 0.05), 3)
    finish(shared)
    for rollout, lease in zip(rollouts, leases(shared, rollouts), strict=True):
        log = shared.home.logs / "workers" / f"{rollout}.log"
        said = log.read_text() if log.exists() else ""
        assert ("ordered at worker.result.after" in said) == (lease > 1)


def test_one_is_cancelled_and_the_others_go_on(shared: Ground) -> None:
    first, *others = begin(shared, 4, 20)
    pid = worker(shared)
    shared.ask(wire.Steer(rollout=first, action="cancel"))
    shared.until(lambda: shared.states()[first] == "cancelled", 60, "it is cancelled")
    shared.until(lambda: all(shared.states()[one] == "finished" for one in others), 60, "others")
    assert worker(shared) == pid
    assert leases(shared, others) == [1, 1, 1]


def test_one_is_paused_and_resumed_while_the_others_go_on(shared: Ground) -> None:
    first, *others = begin(shared, 3, 20)
    shared.ask(wire.Steer(rollout=first, action="pause"))
    shared.until(lambda: all(shared.states()[one] == "finished" for one in others), 60, "others")
    stands = closed(shared, first)
    assert shared.states()[first] == "paused"
    time.sleep(0.3)
    assert closed(shared, first) == stands < 20
    shared.ask(wire.Steer(rollout=first, action="resume"))
    shared.until(lambda: shared.states()[first] == "finished", 60, "it goes on")
    assert leases(shared, [first, *others]) == [1, 1, 1]


@pytest.mark.parametrize("mode", ["next", "wake", "interrupt"])
def test_guidance_is_heard_by_the_one_it_is_for(shared: Ground, mode: str) -> None:
    first, *others = begin(shared, 4, 12)
    message = wire.Guide(id=f"to-{first}", rollout=first, text="Look again.", mode=mode)
    shared.ask(message)
    shared.until(lambda: shared.states()[first] == "finished", 60, "it ends")
    rows = shared.query("SELECT rollout, state FROM guidance WHERE id = ?", f"to-{first}")
    assert rows == [(first, "delivered")]
    shared.until(lambda: all(shared.states()[one] == "finished" for one in others), 60, "others")
    guided = shared.query("SELECT DISTINCT rollout FROM steps WHERE guided > 0")
    assert not {(one,) for one in others} & set(guided)


def test_people_speak_to_all_of_them(shared: Ground) -> None:
    speakers = [Speaker(shared, name) for name in ("ann", "ben")]
    rollouts = begin(shared, 5, 25)
    for speaker in speakers:
        speaker.rollouts = rollouts
        speaker.start()
    os.kill(worker(shared), signal.SIGKILL)
    shared.until(lambda: all(shared.states()[one] == "finished" for one in rollouts), 60, "ends")
    for speaker in speakers:
        speaker.stop()
    assert wrong(shared, *speakers) == []
    assert sum(len(speaker.spoken) for speaker in speakers) > 0


def test_rollouts_that_share_an_engine_go_on_when_it_was_killed(shared: Ground) -> None:
    rollouts = shared.rollouts(workloads.tokens(shared, 40), 4)
    shared.until(lambda: all(closed(shared, one) for one in rollouts), 90, "each has sampled")
    assert not shared.own(OWN)
    (engine,) = shared.own("tests/faults/engine.py")
    os.kill(engine, signal.SIGKILL)
    finish(shared)
    assert {closed(shared, one) for one in rollouts} == {40}


# --- how many, and for how long -------------------------------------------------------------------


@pytest.mark.slow
def test_one_worker_takes_many_one_after_another_and_keeps_nothing_of_them(shared: Ground) -> None:
    task = workloads.null(shared, 2, 0.0)
    shared.rollouts(task, 60)
    shared.until(lambda: is_idle(shared), 60, "the first end")
    before = memory_mb(shared)
    for _ in range(4):
        shared.rollouts(task, 60)
        shared.until(lambda: is_idle(shared), 60, "they end")
    after = memory_mb(shared)
    kept = [after[pid] - mb for pid, mb in before.items() if pid in after]
    assert max(kept) < MEMORY_MB, kept
    # One that is being let go may still be there when the next is asked for.
    shared.until(lambda: len(shared.own(SHARED)) <= 4, 60, "four workers are enough for sixty")
    assert not shared.own(OWN)


def is_idle(ground: Ground) -> bool:
    return not {"queued", "running"} & set(ground.states().values())


def memory_mb(ground: Ground) -> dict[int, float]:
    """Private memory of each shared worker."""
    found = {}
    for pid in ground.own(SHARED):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kb = [int(line.split()[1]) for line in text if line.startswith("Private_")]
        found[pid] = sum(kb) / 1024
    return found


def test_a_workstation_has_a_worker_of_its_own(shared: Ground) -> None:
    (rollout,) = shared.rollouts(workloads.workstation(shared, 3))
    shared.until(lambda: shared.own(f"--rollout {rollout}"), 60, "its own worker")
    shared.until(lambda: shared.states()[rollout] == "finished", 60, "it ends")


# --- the daemon -----------------------------------------------------------------------------------


def test_a_drain_leaves_at_safe_points_and_they_go_on_later(shared: Ground) -> None:
    begin(shared, TOGETHER, 40)
    assert shared.stop() == 0
    assert shared.orphans == []
    assert "again in" not in (shared.home.logs / "daemon.log").read_text().rpartition("draining")[2]
    assert set(shared.states().values()) >= {"running"}
    shared.started()
    finish(shared)


def test_a_killed_daemon_takes_its_shared_workers_along_and_all_go_on(shared: Ground) -> None:
    begin(shared, TOGETHER, 40)
    shared.signal(signal.SIGKILL)
    shared.ended()
    assert shared.orphans == []
    assert not shared.own(SHARED)
    shared.started()
    finish(shared)
