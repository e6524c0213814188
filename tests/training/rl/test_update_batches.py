"""Which groups an update begins, keeps, drops and replaces, by named scenarios.

Groups end as a scenario says; starting them, rows and scores are others' tests.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch

from houston_daemon.training.credit.group_advantages import ScoredRollout
from houston_daemon.training.credit.policy_gradient_rows import PolicyGradientRow
from houston_daemon.training.rl import rl_run
from houston_daemon.training.rl.policy_gradient_trainer import NO_GAP, EngineGap, Pass
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import (
    GroupCoordinator,
    GroupOutcome,
    RolloutGroup,
    refuse_failure_of_all,
)
from houston_daemon.training.rl.update_batches import UpdateBatches
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.purification_queries import PurificationCounts
from houston_shared.store.rollout_queries import RolloutRow
from tests.support.written_home import WrittenHome

SIZE = 2
MIXED, SOLVED, FAILED, LOST = "mixed", "solved", "failed", "lost"
"""How a group ends: its rewards differ; all solved; none solved; one of its rollouts failed."""
SCORES = {MIXED: (100.0, 0.0), SOLVED: (100.0, 100.0), FAILED: (0.0, 0.0), LOST: ()}


class Played(GroupCoordinator):
    """Ends groups in the order in which they are begun, as a scenario has them."""

    def __init__(self, ends: Sequence[str], size: int) -> None:
        self.ends = list(ends)
        self.size = size
        self.begun: list[list[int]] = []

    def task_order(self, update: int) -> list[int]:
        return list(range(self.size))

    def begin(
        self, update: int, batch: int, indices: Any, policy: str, size: int = 0
    ) -> list[RolloutGroup]:
        tasks = list(indices)
        self.begun.append(tasks)
        if any(self.ends[task] == "refused" for task in tasks):
            raise HoustonError("The task is refused.")
        names = [tuple(f"r{task}.{n}" for n in range(SIZE)) for task in tasks]
        return [
            RolloutGroup(
                update=update, batch=batch, split="train", index=task, policy=policy, rollouts=ids
            )
            for task, ids in zip(tasks, names, strict=True)
        ]

    def wait(self, groups: Sequence[RolloutGroup]) -> list[GroupOutcome]:
        return [outcome(group, self.ends[group.index]) for group in groups]


def outcome(group: RolloutGroup, end: str) -> GroupOutcome:
    pairs = zip(group.rollouts, SCORES[end], strict=False)
    members = tuple(ScoredRollout(name, score, 40) for name, score in pairs)
    counts = PurificationCounts(failures_before=1, failures_after=1)
    return GroupOutcome(group, members, (counts,) * SIZE, steps=3 * SIZE)


class Scorer:
    def score(self, passes: Sequence[Pass], cap: float) -> EngineGap:
        self.passes = len(passes)
        return NO_GAP

    def logprobs(self, one_pass: Pass) -> torch.Tensor:
        raise AssertionError("nothing was purified")


class Scenario(NamedTuple):
    ends: list[str]
    """Of the tasks in their order."""
    begun: list[list[int]]
    """Tasks of each batch."""
    kept: list[int]
    zero_variance: int = 0
    failed: int = 0
    refill: int = 2
    groups: int = 2


SCENARIOS = {
    "all teach something": Scenario([MIXED, MIXED], [[0, 1]], [0, 1]),
    "one is alike and replaced": Scenario([SOLVED, MIXED, MIXED], [[0, 1], [2]], [1, 2], 1),
    "one fails by the engine and is replaced": Scenario(
        [MIXED, LOST, MIXED], [[0, 1], [2]], [0, 2], failed=1
    ),
    "no task is passed over": Scenario(
        [SOLVED, FAILED, SOLVED, FAILED, MIXED, MIXED], [[0, 1], [2, 3], [4, 5]], [4, 5], 4
    ),
    "the cap ends it": Scenario([SOLVED, MIXED, FAILED, MIXED], [[0, 1], [2]], [1], 2, refill=1),
    "no refill": Scenario([SOLVED, MIXED, MIXED], [[0, 1]], [1], 1, refill=0),
    "tasks run out": Scenario([SOLVED, LOST, MIXED], [[0, 1], [2]], [2], 1, 1),
    "nothing teaches anything": Scenario([SOLVED, FAILED], [[0, 1]], [], 2, refill=0),
    "every group fails": Scenario([LOST] * 4, [[0, 1], [2, 3]], [], failed=4, refill=1),
}


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedConfiguration:
    WrittenHome(tmp_path).close()
    return LoadedConfiguration(Configuration(), Home(tmp_path), "defaults")


def batches(
    loaded: LoadedConfiguration, played: Played, groups: int, refill: int
) -> tuple[UpdateBatches, Scorer]:
    recipe = RlRecipe(groups=groups, group_size=SIZE, refill=refill, minibatches=2)
    scorer = Scorer()
    return UpdateBatches(loaded, recipe, played, scorer, 0), scorer


def rows_of(self: UpdateBatches, group: GroupOutcome, gate: Any) -> list[PolicyGradientRow]:
    """A row of three tokens for each rollout, two of them trained."""
    return [
        PolicyGradientRow(
            id=f"{one.rollout}/0.0",
            rollout=one.rollout,
            prompt=[5],
            completion=[6, 7, 8],
            mask=[1, 0, 1],
            advantages=[1.0] * 3,
            sampled_logprobs=[math.nan] * 3,
        )
        for one in group.members
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_groups_are_counted_dropped_and_replaced(
    loaded: LoadedConfiguration, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = SCENARIOS[name]
    monkeypatch.setattr(UpdateBatches, "_rows", rows_of)
    played = Played(scenario.ends, len(scenario.ends))
    made, scorer = batches(loaded, played, scenario.groups, scenario.refill)
    batch = made.make(0, "policy@2")
    assert played.begun == scenario.begun
    figures = batch.figures
    ended = [task for tasks in scenario.begun for task in tasks]
    assert figures.groups == len(ended)
    assert (figures.zero_variance, figures.failed) == (scenario.zero_variance, scenario.failed)
    assert figures.groups - figures.zero_variance - figures.failed == len(scenario.kept)
    assert figures.rollouts == SIZE * (len(ended) - scenario.failed)
    assert batch.trained == 2 * SIZE * len(scenario.kept)
    assert len(batch.parts) == 2, "as many optimizer steps as the recipe says, empty or not"
    assert scorer.passes == sum(map(len, batch.parts))
    if figures.rollouts:  # what failed is no figure of the policy
        assert (figures.steps, figures.tool_failures) == (3.0, 1.0)
        wanted = [score >= 100 for task in ended for score in SCORES[scenario.ends[task]]]
        assert figures.solved == pytest.approx(sum(wanted) / len(wanted))
    else:
        assert (figures.steps, figures.solved, figures.reward) == (0.0, 0.0, 0.0)


def test_a_task_that_is_refused_ends_the_run_with_its_sentence(loaded: LoadedConfiguration) -> None:
    """As it is no fault of the policy, and would be of the next task either."""
    played = Played([SOLVED, MIXED, "refused"], 3)
    made, _ = batches(loaded, played, groups=2, refill=2)
    with pytest.raises(HoustonError, match="refused"):
        made.make(0, "policy@2")
    assert played.begun == [[0, 1], [2]], "groups that were begun are found again"


def test_the_next_update_begins_with_the_same_tasks_as_it_is_made_of(
    loaded: LoadedConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sampling is one update ahead."""
    monkeypatch.setattr(UpdateBatches, "_rows", rows_of)
    played = Played([MIXED] * 4, 4)
    made, _ = batches(loaded, played, groups=2, refill=1)
    made.begin(1, "policy@2")
    made.make(1, "policy@3")
    assert played.begun == [[0, 1], [0, 1]]


def test_what_failed_is_no_figure_of_a_validation() -> None:
    shared: dict[str, Any] = {"update": 0, "batch": 0, "split": "validation", "policy": "p"}
    groups = [RolloutGroup(**shared, index=n, rollouts=(f"r{n}",)) for n in range(3)]
    outcomes = [
        GroupOutcome(
            group,
            (ScoredRollout(group.rollouts[0], 100.0 * (group.index == 0), 9),) if sound else (),
            (PurificationCounts(failures_after=2),),
            4,
        )
        for group, sound in zip(groups, (True, True, False), strict=True)
    ]
    figures = rl_run._validation_figures(outcomes, 100.0)
    assert (figures.tasks, figures.solved, figures.tool_failures, figures.steps) == (2, 0.5, 2, 4)


REASON = "There is no dialect 'chatml'"
GROUPS = [
    RolloutGroup(update=2, batch=0, split="train", index=0, policy="base", rollouts=("r0", "s0")),
    RolloutGroup(update=2, batch=0, split="train", index=1, policy="base", rollouts=("r1", "s1")),
]
"""Of four rollouts: r0, s0, r1, s1."""


def ended(id: str, state: str) -> RolloutRow:
    texts = ("task", "paused_by", "engine", "policy", "group_id", "parent", "sandbox", "activity")
    numbers = ("forks", "first_step", "steps", "active_us", "evaluations", "errors")
    times = ("created_at", "updated_at", "last_seq", "spec_seq")
    fields: dict[str, Any] = {
        **dict.fromkeys(texts, ""),
        **dict.fromkeys((*numbers, *times), 0),
        **dict.fromkeys(("parent_step", "best_score", "last_score", "head_seq"), None),
    }
    return RolloutRow(id=id, state=state, reason=REASON, **fields)


@pytest.mark.parametrize(
    ("states", "batch", "refused"),
    [
        pytest.param("ffff", 0, True, id="all fail"),
        pytest.param("fffd", 0, False, id="one comes to its end"),
        pytest.param("cccc", 0, False, id="somebody cancels all"),
        pytest.param("ffff", 1, False, id="those that take the place of others fail"),
    ],
)
def test_an_update_that_begins_with_failures_only_ends_the_run(
    states: str, batch: int, refused: bool
) -> None:
    words = {"f": "failed", "d": "finished", "c": "cancelled"}
    names = ("r0", "s0", "r1", "s1")
    rows = {name: ended(name, words[state]) for name, state in zip(names, states, strict=True)}
    groups = [msgspec.structs.replace(group, batch=batch) for group in GROUPS]
    if not refused:
        refuse_failure_of_all(groups, rows)
        return
    with pytest.raises(HoustonError) as problem:
        refuse_failure_of_all(groups, rows)
    assert "Update 3 began with 4 rollouts, and all failed" in str(problem.value)
    assert REASON in str(problem.value) and "houston rollout show r0" in str(problem.value)


@pytest.mark.parametrize(
    ("group", "said", "kept"),
    [
        pytest.param({"split": "train"}, "Update 3 began with 4 rollouts", "not trained",
                     id="attempts"),
        pytest.param({"split": "train", "refines": "r"}, "Update 3 tried its critiques in 4"
                     " refinements", "not trained", id="refinements"),
        pytest.param({"split": "validation"}, "The validation after 2 updates began with 4"
                     " rollouts", "what was trained stays", id="validation"),
    ],
)  # fmt: skip
def test_what_failed_is_called_what_it_is(group: dict[str, str], said: str, kept: str) -> None:
    rows = {name: ended(name, "failed") for name in ("r0", "s0", "r1", "s1")}
    with pytest.raises(HoustonError) as problem:
        refuse_failure_of_all([msgspec.structs.replace(each, **group) for each in GROUPS], rows)
    assert f"{said}, and all failed" in str(problem.value) and kept in str(problem.value)
