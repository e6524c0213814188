"""Curves, summaries, walks and runs of process rewards, as tables."""

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.store import process_reward_queries
from houston_shared.store.event_bodies import ProcessRewardGiven
from houston_shared.store.process_reward_queries import (
    StepReward,
    WeakRun,
    find_next_lowest,
    reward_curve,
    summarize_process_rewards,
)
from houston_shared.store.store_reader import Reader
from tests.support.written_home import WrittenHome


def rewards(*scores: float) -> list[StepReward]:
    return [
        StepReward(step, score, int(score < 0.3), "prm@1", step * 1_000_000)
        for step, score in enumerate(scores, 1)
    ]


CURVES: dict[str, tuple[list[StepReward], int, list[float]]] = {
    "nothing": ([], 4, []),
    "one": (rewards(0.5), 4, [0.5]),
    "a mean in each part": (rewards(0.0, 0.5, 1.0, 0.5), 2, [0.25, 0.75]),
    "a part without a step has the one before": (
        [StepReward(1, 0.25, 1, "p", 0), StepReward(2, 0.75, 0, "p", 99)],
        4,
        [0.25, 0.25, 0.25, 0.75],
    ),
    "what came before the first is left out": ([StepReward(1, 0.5, 0, "p", 75)], 2, [0.5]),
}


@pytest.mark.parametrize("case", CURVES)
def test_a_curve_has_the_means_over_active_time(case: str) -> None:
    given, cells, expected = CURVES[case]
    curve = reward_curve(given, cells)
    assert curve == expected


def test_a_summary_names_the_first_of_the_lowest() -> None:
    summary = summarize_process_rewards(rewards(0.5, 0.25, 0.25))
    assert summary is not None
    assert (summary.lowest_step, summary.lowest, summary.steps) == (2, 0.25, 3)
    assert summary.mean == pytest.approx(1 / 3)
    assert summarize_process_rewards([]) is None


WALKS: dict[str, tuple[int, bool, int | None]] = {
    "begins at the lowest": (0, False, 2),
    "equal ones in order": (2, False, 4),
    "then the next": (4, False, 3),
    "ends at the highest": (1, False, None),
    "back": (3, True, 4),
    "back from the lowest": (2, True, None),
    "back from nowhere": (0, True, None),
    "from a step without a score": (9, False, 2),
}


@pytest.mark.parametrize("case", WALKS)
def test_a_walk_goes_from_the_lowest_up(case: str) -> None:
    step, back, expected = WALKS[case]
    assert find_next_lowest(rewards(0.9, 0.1, 0.5, 0.1), step, back) == expected


RUNS: dict[str, tuple[dict[int, float], int | None]] = {
    "three": ({4: 0.9, 5: 0.1, 6: 0.2, 7: 0.0}, 3),
    "two": ({5: 0.9, 6: 0.2, 7: 0.0}, None),
    "broken by a strong one": ({4: 0.1, 5: 0.1, 6: 0.9, 7: 0.1}, None),
    "over before the newest": ({4: 0.1, 5: 0.1, 6: 0.1, 7: 0.9}, None),
    "with a step between that nobody scored": ({3: 0.1, 4: 0.1, 6: 0.1, 7: 0.1}, None),
    "the newest not yet scored": ({3: 0.1, 4: 0.1, 5: 0.1}, 3),
    "scores far behind": ({1: 0.1, 2: 0.1}, None),
    "all of them": (dict.fromkeys(range(1, 8), 0.1), 7),
}


@pytest.mark.parametrize("case", RUNS)
def test_weak_decisions_in_a_row_end_at_the_newest_score(case: str, written: WrittenHome) -> None:
    scores, expected = RUNS[case]
    written.rollout("r")
    for step in range(1, 8):
        written.step("r", step)
    seq = 0
    for step, score in scores.items():
        body = ProcessRewardGiven(policy="prm@1", score=score, weak=score < 0.3)
        seq = written.event(EventKey("r", step), "process-reward", body)
    with Reader(written.home) as reader:
        runs = reader.run(process_reward_queries.read_weak_runs(5))
    last = max(scores)
    run = WeakRun(expected, last, scores[last], "prm@1", seq) if expected else None
    assert runs.get("r") == run


def test_the_newest_policy_decides_whether_a_step_is_weak(written: WrittenHome) -> None:
    written.rollout("r")
    for step in (1, 2, 3):
        written.step("r", step)
        for policy, score in (("prm@1", 0.1), ("prm@2", 0.8)):
            body = ProcessRewardGiven(policy=policy, score=score, weak=score < 0.3)
            written.event(EventKey("r", step), "process-reward", body)
    with Reader(written.home) as reader:
        assert reader.run(process_reward_queries.read_weak_runs(5)) == {}
        by_step = reader.run(process_reward_queries.list_step_rewards("r"))
    assert [reward.policy for reward in by_step] == ["prm@2"] * 3
