"""F1: a worker dies at each point, rollouts run, people speak.

Another takes its rollout over each time; at the end nothing acked is lost or doubled.
"""

import random
from collections.abc import Iterator

import pytest

from tests.faults.fault_points import FAULT_POINTS
from tests.faults.kill_cycles import STOPPED, Segment
from tests.support.tiers import sampled

NAMES = [name for name in FAULT_POINTS if name.startswith("worker.")]


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Segment]:
    made = Segment(tmp_path_factory.mktemp("worker") / "ground", random.Random(3))
    try:
        made.begin()
        yield made
    finally:
        made.ground.close()


@pytest.mark.parametrize("point", sampled(NAMES, 4))
def test_it_goes_on_after_a_death_at(segment: Segment, point: str) -> None:
    assert segment.kill_at(point) or segment.kill_at(point), f"{point} was not reached"


def test_it_goes_on_after_a_death_at_random(segment: Segment) -> None:
    segment.random("worker at random")


def test_it_goes_on_after_it_was_stopped(segment: Segment) -> None:
    segment.disturb(STOPPED)


@pytest.mark.every_tier
def test_nothing_is_lost_doubled_altered_or_left_over(segment: Segment) -> None:
    result = segment.finish()
    assert result.findings == []
    assert result.counts["acked"] > 0
    assert result.counts["guidance"] > 0
