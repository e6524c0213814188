"""F1: the daemon, its fork server or its indexer dies at each point, rollouts run, people speak.

Each time it is started again and everything goes on; at the end nothing acked is lost or doubled.
"""

import random
from collections.abc import Iterator

import pytest

from tests.faults.fault_points import FAULT_POINTS
from tests.faults.kill_cycles import FAULTS, Segment
from tests.support.tiers import sampled

NAMES = [name for name in FAULT_POINTS if not name.startswith("worker.")]


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Segment]:
    made = Segment(tmp_path_factory.mktemp("daemon") / "ground", random.Random(3))
    try:
        made.begin()
        yield made
    finally:
        made.ground.close()


@pytest.mark.parametrize("point", sampled(NAMES, 5))
def test_it_goes_on_after_a_death_at(segment: Segment, point: str) -> None:
    assert segment.kill_at(point) or segment.kill_at(point), f"{point} was not reached"


@pytest.mark.parametrize("kind", ["daemon at random", "engine at random"])
def test_it_goes_on_after_a_death_of(segment: Segment, kind: str) -> None:
    segment.random(kind)


@pytest.mark.parametrize("kind", sampled(FAULTS, 2))
def test_it_goes_on_with(segment: Segment, kind: str) -> None:
    segment.disturb(kind)


@pytest.mark.every_tier
def test_nothing_is_lost_doubled_altered_or_left_over(segment: Segment) -> None:
    result = segment.finish()
    assert result.findings == []
    assert result.counts["acked"] > 0
    assert result.counts["guidance"] > 0
