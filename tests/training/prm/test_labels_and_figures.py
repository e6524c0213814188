"""Labels as a file, their split by task, and how scores agree with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.prm.decision_labels import DecisionLabel, read_labels, split_labels
from houston_daemon.training.prm.prm_figures import agreement, rank_correlation, roc_auc
from houston_shared.errors import HoustonError


def line(**changes: Any) -> dict[str, Any]:
    label = {"rollout": "r", "step": 1, "task": "t", "text": "x", "score": 0.5, "source": "judge"}
    return {**label, **changes}


def label(task: str, sound: bool = True) -> DecisionLabel:
    return DecisionLabel(
        rollout="r", step=1, task=task, text="x", score=0.5, source="judge", sound=sound
    )


def test_labels_are_read_and_further_fields_are_let_be(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in (line(), line(step=2, text_hash="f"))))
    assert [each.step for each in read_labels(file)] == [1, 2]


@pytest.mark.parametrize(
    "broken",
    ["{", json.dumps(line(score=1.5)), json.dumps(line(source="oracle")), '{"rollout": "r"}', ""],
    ids=["no JSON", "a score above 1", "nobody who labels", "fields are missing", "an empty line"],
)
def test_a_broken_line_is_named(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(f"{json.dumps(line())}\n{broken}\n{json.dumps(line())}\n")
    with pytest.raises(HoustonError, match=r"Line 2 of .*labels\.jsonl is not a label"):
        read_labels(file)


def test_no_task_is_both_trained_and_measured_on() -> None:
    labels = [label(f"t{number % 10}") for number in range(40)]
    split = split_labels(labels, 0.3, seed=1)
    assert {each.task for each in split.train}.isdisjoint(each.task for each in split.held_out)
    assert len(split.train) + len(split.held_out) == 40
    assert len({each.task for each in split.held_out}) == 3
    assert split == split_labels(labels, 0.3, seed=1) != split_labels(labels, 0.3, seed=2)


def test_of_few_tasks_one_is_held_out_unless_none_was_asked_for() -> None:
    labels = [label("a"), label("b")]
    assert [len(part) for part in split_labels(labels, 0.2, seed=0)] == [1, 1]
    assert [len(part) for part in split_labels(labels, 0.0, seed=0)] == [2, 0]


@pytest.mark.parametrize(
    ("better", "worse", "share"),
    [
        ([0.9, 0.8], [0.1], 1.0),
        ([0.1], [0.9, 0.8], 0.0),
        ([0.5], [0.5], 0.5),
        ([0.9, 0.2], [0.5], 0.5),
        ([], [0.5], None),
    ],
)
def test_share_of_pairs_in_the_right_order(
    better: list[float], worse: list[float], share: float | None
) -> None:
    assert roc_auc(better, worse) == share


def test_what_is_no_action_is_neither_trained_nor_measured() -> None:
    split = split_labels([label("a"), label("a", sound=False)], 0.5, seed=0)
    assert (len(split.train), len(split.held_out)) == (1, 0)
    with pytest.raises(HoustonError, match=r"None of the .* can be trained on"):
        split_labels([label("a", sound=False)], 0.5, seed=0)


def test_figures_by_hand() -> None:
    """Scores 0.1, 0.4, 0.8 for 0, 0.5, 1: off by 0.1, 0.1, 0.2. A mean of 0.25 is off by 0.25,
    0.25, 0.75."""
    figures = agreement([0.1, 0.4, 0.8], [0.0, 0.5, 1.0], trained_mean=0.25)
    assert figures.mae == pytest.approx(0.4 / 3)
    assert figures.mean_predictor_mae == pytest.approx(1.25 / 3)
    assert figures.rank_correlation == pytest.approx(1.0)
    assert [(each.low, each.count) for each in figures.calibration if each.count] == [
        (0.1, 1), (0.4, 1), (0.8, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "labels", "wanted"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 2, 3], [1, 2, 3, 4], 4.5 / (4.5 * 5) ** 0.5),
        ([1, 1, 1], [1, 2, 3], None),
        ([], [], None),
    ],
    ids=["same order", "reversed", "ties share their mean rank", "all alike", "none"],
)
def test_rank_correlation_by_hand(
    scores: list[float], labels: list[float], wanted: float | None
) -> None:
    found = rank_correlation(scores, labels)
    assert found == (wanted if wanted is None else pytest.approx(wanted))
