"""A run that was killed goes on with the process rewards that it had, and needs no model for
them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from houston_daemon.training.credit.group_advantages import ScoredRollout
from houston_daemon.training.rl.process_rewards import ProcessRewards
from houston_daemon.training.rl.rollout_groups import GroupOutcome, RolloutGroup
from houston_shared.store.store_reader import Reader
from tests.support.recorder_client import Station
from tests.training.prm.test_live_scores import act, begun

STEPS = 5


class Counting:
    """A model that says something else every time."""

    def __init__(self, first: float) -> None:
        self.next = first

    def score(self, texts: Sequence[str]) -> list[float]:
        self.next += 0.01
        return [self.next + number / 100 for number in range(len(texts))]


def outcome_of(rollout: str, batch: int) -> GroupOutcome:
    group = RolloutGroup(
        update=0, batch=batch, split="train", index=batch, policy="base", rollouts=(rollout,)
    )
    return GroupOutcome(group, (ScoredRollout(rollout, 0.0, 100),), (), STEPS)


@pytest.mark.parametrize("scored_before", [0, 1, 2], ids="killed after {} groups".format)
def test_what_was_scored_before_a_kill_stays_and_the_rest_is_scored(
    station: Station, tmp_path: Path, scored_before: int
) -> None:
    worker = begun(station)
    for step in range(1, STEPS + 1):
        act(worker, step)
    outcomes = [outcome_of(worker.rollout, batch) for batch in (0, 1)]
    with Reader(station.home) as reader:
        before = ProcessRewards(tmp_path, Counting(0.1)).add(reader, outcomes[:scored_before])
        after = ProcessRewards(tmp_path, Counting(0.5)).add(reader, outcomes)
        assert after[:scored_before] == before
        assert all(steps[1] > 0.5 for one in after[scored_before:] for steps in one.scores)
        assert ProcessRewards(tmp_path).add(reader, outcomes) == after, "no model is needed"
        with pytest.raises(LookupError, match="were not scored"):
            ProcessRewards(tmp_path).add(reader, [outcome_of(worker.rollout, 2)])
