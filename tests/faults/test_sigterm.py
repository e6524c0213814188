"""F15: SIGTERM under load drains and ends with 0; a second one ends at once, and loses nothing."""

import os
import signal
import time

import pytest

from tests.faults import workloads
from tests.faults.daemon_under_test import Ground, Speaker
from tests.faults.final_checks import until_over, wrong
from tests.support.tiers import sampled

PATIENT = 100
"""Seconds for a drain that needs no limit: one that ends sooner has not been waited for."""
FORCED_BOUND = 50
"""A second signal takes one; the rest is a busy machine."""
WORKER = "agent.rollout_worker --endpoint"


def busy(ground: Ground, drain_seconds: float) -> Speaker:
    ground.environment["HOUSTON__DAEMON__DRAIN_SECONDS"] = str(drain_seconds)
    ground.started()
    speaker = Speaker(ground, "ann", 0.02)
    speaker.rollouts = ground.rollouts(workloads.null(ground, 60), 4)
    speaker.rollouts += ground.rollouts(workloads.workstation(ground, 8))
    speaker.start()
    ground.until(lambda: ground.query("SELECT 1 FROM steps WHERE step > 3"), 60, "steps")
    return speaker


def goes_on(ground: Ground, speaker: Speaker) -> None:
    assert ground.orphans == []
    ground.started()
    until_over(ground)
    speaker.stop()
    assert wrong(ground, speaker) == []
    assert ground.stop() == 0


def test_a_drain_ends_with_0_and_everything_goes_on_later(ground: Ground) -> None:
    speaker = busy(ground, PATIENT)
    ground.signal(signal.SIGTERM)
    assert ground.ended(PATIENT) == 0
    deaths = (ground.home.logs / "daemon.log").read_text()
    assert "again in" not in deaths, "a worker that leaves has not died"
    goes_on(ground, speaker)


@pytest.mark.parametrize("pause", sampled([0.0, 0.05, 0.5], 1))
def test_a_second_signal_ends_it_at_once(ground: Ground, pause: float) -> None:
    """At any moment of a drain; a worker that hangs keeps it open."""
    # Two that come at once are one to the kernel: then it drains for as long as it may.
    speaker = busy(ground, PATIENT if pause else 10)
    for pid in ground.own(WORKER):
        os.kill(pid, signal.SIGSTOP)
    ground.signal(signal.SIGTERM)
    time.sleep(pause)
    ground.signal(signal.SIGTERM)
    code = ground.ended(FORCED_BOUND)
    assert code == (1 if pause else code)
    goes_on(ground, speaker)


@pytest.mark.slow
def test_workers_that_hang_do_not_keep_a_drain_from_ending(ground: Ground) -> None:
    speaker = busy(ground, 10)
    for pid in ground.own(WORKER):
        os.kill(pid, signal.SIGSTOP)
    ground.signal(signal.SIGTERM)
    assert ground.ended(PATIENT) == 0
    goes_on(ground, speaker)
