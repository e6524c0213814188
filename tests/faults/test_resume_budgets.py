"""Active time and submissions: what kills, stops, downtime and pauses may not move."""

import signal
import time

import pytest

from houston_shared import wire
from tests.faults import workloads
from tests.faults.daemon_under_test import Ground
from tests.faults.final_checks import until_over, wrong

BEATS = 4
"""A worker dies as it is about to send its fourth heartbeat: three were acked, a second apart."""
LEAST_US = 1_900_000
"""Between the first and the third heartbeat."""
TASK = 'workspace.source = "workspace"\n[budget]\nevaluations = 3\n'


def active(ground: Ground) -> int:
    ((found,),) = ground.query("SELECT active_us FROM rollouts")
    return int(found)


def assigned(ground: Ground, lease: int) -> None:
    ground.until(lambda: ground.query("SELECT lease FROM rollouts") == [(lease,)], 60, "a worker")


def test_active_time_outlives_workers_and_stands_still_while_nothing_works(ground: Ground) -> None:
    ground.started()
    ground.order("worker.beat.before", f"kill@{BEATS}")
    began = time.monotonic()
    away = 0.0
    script = [{"thought": "long", "calls": [workloads.call("sleep", sleep_time=9)]}]
    (rollout,) = ground.rollouts(ground.task("sleeper", TASK, script))

    assigned(ground, 2)
    counted = active(ground)
    assert counted >= LEAST_US, "what an open step had taken when its worker was killed"

    ground.order("worker.beat.before", "delay=0@4")
    ground.until(lambda: len(ground.fired()) == 2, 60, "three more heartbeats")
    assert ground.stop() == 0
    assert active(ground) >= counted + LEAST_US, "and when the daemon was stopped"
    counted, stopped = active(ground), time.monotonic()
    time.sleep(1.5)
    away += time.monotonic() - stopped
    ground.started()
    assert active(ground) == counted, "downtime is not active time"

    ground.ask(wire.Steer(rollout=rollout, action="pause"))
    ground.until(
        lambda: ground.query("SELECT 1 FROM rollouts WHERE activity='paused'"), 20, "it stands"
    )
    paused = time.monotonic()
    counted = active(ground)
    time.sleep(2.2)
    assert active(ground) <= counted + 1_000_000, "a pause is not active time"
    away += time.monotonic() - paused
    ground.signal(signal.SIGKILL)
    ground.ended()
    ground.started()
    ground.ask(wire.Steer(rollout=rollout, action="resume"))
    until_over(ground)
    most = time.monotonic() - began - away
    assert counted <= active(ground) <= most * 1e6, "never less than it was, never more than passed"
    assert wrong(ground) == []


def test_a_submission_is_counted_once_and_only_with_its_score(ground: Ground) -> None:
    evaluate = "[evaluate]\ncommand = 'echo {\\\"overall_score\\\": 50}'\nseconds = 8\n"
    script = [
        {"thought": f"e{n}", "calls": [workloads.call("eval")], "delay": 0.1} for n in range(6)
    ]
    ground.started()
    for point, when in (
        ("worker.evaluation.before", 1),
        ("worker.evaluation.after", 1),
        ("worker.result.after", 1),
    ):
        before = len(ground.fired())
        ground.order(point, f"kill@{when}")
        if not before:
            ground.rollouts(ground.task("graded", TASK + evaluate, script))
        ground.until(lambda b=before: ground.fired()[b:], 60, f"a death at {point}")
    until_over(ground)
    rows = ground.query(
        "SELECT body FROM events WHERE kind='result' AND part='call.0' ORDER BY step"
    )
    assert len(rows) == 7
    ((used, best),) = ground.query("SELECT evaluations, best_score FROM rollouts")
    assert (used, best) == (3, 50.0), "all three were the agent's to use"
    unknown = [body for (body,) in rows if b"interrupted" in body]
    assert len(unknown) == 2, "two evaluators' outcomes are unknown"
    assert all(b"No submission" in body for body in unknown), "and cost nothing"
    assert sum(b"All 3 submissions are used" in body for (body,) in rows) == 1
    assert wrong(ground) == []


@pytest.mark.slow
def test_a_last_evaluation_that_kills_broke_off_is_made_again(ground: Ground) -> None:
    """A rollout of days must not end without a score because a daemon was restarted then."""
    evaluate = "[evaluate]\ncommand = 'echo {\\\"overall_score\\\": 50}'\nseconds = 8\n"
    ground.started()
    ground.order("worker.evaluation.before", "kill@1")
    ground.rollouts(ground.task("graded", TASK + evaluate, [{"thought": "done", "calls": []}]))
    ground.until(ground.fired, 60, "a death in the last evaluation")
    ground.order("worker.evaluation.after", "kill@1")
    ground.until(lambda: len(ground.fired()) == 2, 60, "and in the one after it")
    until_over(ground)
    assert ground.query("SELECT state, evaluations, best_score FROM rollouts") == [
        ("finished", 1, 50.0)
    ]
    assert wrong(ground) == []
