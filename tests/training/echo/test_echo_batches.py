"""What one update of ECHO attempts, criticises, refines and trains on, by named scenarios.

Attempts, critiques and refinements end as a scenario says; running them is another test's.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from houston_daemon.review.critic.refinements import RefinementText
from houston_daemon.training.credit.group_advantages import ScoredRollout
from houston_daemon.training.credit.policy_gradient_rows import PolicyGradientRow
from houston_daemon.training.echo.echo_batches import EchoBatches, RefinedAttempt, critique_rows
from houston_daemon.training.echo.sampled_critiques import (
    CriticisedAttempt,
    CritiqueSampler,
    SampledCritique,
)
from houston_daemon.training.rl.policy_gradient_trainer import NO_GAP, EngineGap, Pass
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import GroupCoordinator, GroupOutcome, RolloutGroup
from houston_daemon.training.rl.update_batches import UpdateBatches
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.home import Home
from houston_shared.store.purification_queries import PurificationCounts
from tests.support.written_home import WrittenHome

LN = math.log
RECIPE = RlRecipe(
    critic="trained", groups=2, group_size=3, refill=0, minibatches=2, reward="score", scale="none"
)


class Task(NamedTuple):
    """How one task goes."""

    attempt: float | None
    """Its score; None: it failed."""
    said: str = "abc"
    """A letter for each critique; `-` for one that is none, `.` for one that changes nothing."""
    refined: tuple[float, ...] = ()
    """Scores of the refinements; none: one of them failed."""


class Played(GroupCoordinator):
    """Ends attempts and refinements as the tasks say."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = list(tasks)
        self.begun: list[list[int]] = []
        self.told: dict[str, list[str]] = {}

    def task_order(self, update: int) -> list[int]:
        return list(range(len(self.tasks)))

    def begin(
        self, update: int, batch: int, indices: Any, policy: str, size: int = 0
    ) -> list[RolloutGroup]:
        assert size == 1, "each task is attempted once"
        self.begun.append(list(indices))
        return [
            RolloutGroup(
                update=update, batch=batch, split="train", index=task, policy=policy,
                rollouts=(f"a{task}",),
            )
            for task in self.begun[-1]
        ]  # fmt: skip

    def refine(self, attempt: RolloutGroup, critiques: Sequence[RefinementText]) -> RolloutGroup:
        (rollout,) = attempt.rollouts
        self.told[rollout] = [said.text for said in critiques]
        names = tuple(f"{rollout}.{number}" for number in range(len(critiques)))
        return RolloutGroup(
            update=attempt.update, batch=attempt.batch, split="train", index=attempt.index,
            policy=attempt.policy, rollouts=names, refines=rollout,
        )  # fmt: skip

    def wait(self, groups: Sequence[RolloutGroup]) -> list[GroupOutcome]:
        return [self._ended(group, self.tasks[group.index]) for group in groups]

    def _ended(self, group: RolloutGroup, task: Task) -> GroupOutcome:
        scores: tuple[float, ...] = () if task.attempt is None else (task.attempt,)
        if group.refines:
            scores = task.refined
        pairs = zip(group.rollouts, scores, strict=bool(scores))
        members = tuple(ScoredRollout(name, score, 40) for name, score in pairs)
        counts = (PurificationCounts(),) * len(group.rollouts)
        return GroupOutcome(group, members, counts, steps=3)


class Critiques(CritiqueSampler):
    """Says what the tasks say."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self.asked: list[list[str]] = []

    def criticise(self, name: str, attempts: Sequence[str], critic: str) -> list[CriticisedAttempt]:
        self.asked.append(list(attempts))
        return [criticised(rollout, self._tasks[int(rollout[1:])]) for rollout in attempts]


def criticised(rollout: str, task: Task) -> CriticisedAttempt:
    kinds = {"-": ("", "it is empty"), ".": ("", "")}
    return CriticisedAttempt(
        rollout=rollout,
        score=(task.attempt or 0.0) / 100,
        critic="critic@2",
        prompt=[5, 6],
        level=0,
        critiques=tuple(
            SampledCritique([7, 8], None, *kinds.get(letter, (letter, ""))) for letter in task.said
        ),
        cached_tokens=1,
    )


class Scorer:
    name = "critic@2"

    def __init__(self) -> None:
        self.advantages: list[float] = []

    @property
    def scorer(self) -> "Scorer":
        return self

    def score(self, passes: Sequence[Pass], cap: float) -> EngineGap:
        for one_pass in passes:
            self.advantages += one_pass["advantages"][:, 0].tolist()
        return NO_GAP

    def logprobs(self, one_pass: Pass) -> torch.Tensor:
        raise AssertionError("nothing was purified")


class Frozen(Scorer):
    @property
    def scorer(self) -> None:  # type: ignore[override]
        return None


def made(
    tmp_path: Path, tasks: Sequence[Task], monkeypatch: pytest.MonkeyPatch,
    critic: Scorer, recipe: RlRecipe = RECIPE,
) -> tuple[EchoBatches, Played, Critiques]:  # fmt: skip
    WrittenHome(tmp_path).close()
    loaded = LoadedConfiguration(Configuration(), Home(tmp_path), "defaults")
    monkeypatch.setattr(UpdateBatches, "_rows", rows_of)
    played = Played(tasks)
    some = EchoBatches(
        loaded, recipe, played, Scorer(), 0, critic, None, tmp_path / "critiques"  # type: ignore[arg-type]
    )  # fmt: skip
    some._critiques = critiques = Critiques(tasks)
    return some, played, critiques


def rows_of(self: UpdateBatches, group: GroupOutcome, gate: Any) -> list[PolicyGradientRow]:
    """A token for each refinement."""
    return [
        PolicyGradientRow(each.rollout, each.rollout, [5], [6], [1], [1.0], [math.nan])
        for each in group.members
    ]


TWO = (Task(50.0, "abc", (100.0, 50.0, 0.0)), Task(0.0, "abc", (0.0, 50.0, 0.0)))


def test_each_attempt_is_criticised_and_refined_and_both_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    critic = Scorer()
    batches, played, critiques = made(tmp_path, TWO, monkeypatch, critic)
    batch = batches.make(3, "policy@4")
    assert played.begun == [[0, 1]] and critiques.asked == [["a0", "a1"]]
    assert played.told == {"a0": ["a", "b", "c"], "a1": ["a", "b", "c"]}
    assert batch.trained == 6 and batch.figures.rollouts == 6
    assert batch.critic is not None
    assert len(batch.critic.parts) == len(batch.parts) == 2, "in the same optimizer steps"
    figures = batch.critic.figures
    assert (figures.attempts, figures.critiques, figures.trained_tokens) == (2, 6, 12)
    assert (figures.before, figures.before_refined) == (0.25, 0.25)
    assert figures.after == pytest.approx(2.0 / 6)
    gained = [LN(0.6 / 0.1), 0.0, LN(0.6 / 1.1), 0.0, LN(1.1 / 0.6), 0.0]
    assert figures.gain == pytest.approx(sum(gained) / 6)
    assert figures.improved == pytest.approx(2 / 6) and figures.worsened == pytest.approx(1 / 6)
    means = [sum(gained[:3]) / 3] * 3 + [sum(gained[3:]) / 3] * 3
    wanted = [gain - mean for gain, mean in zip(gained, means, strict=True)]
    assert sorted(critic.advantages) == pytest.approx(sorted(wanted))


class Scenario(NamedTuple):
    """What is counted of tasks that go otherwise."""

    tasks: tuple[Task, ...]
    begun: list[list[int]]
    asked: list[list[str]]
    counts: dict[str, int]
    """Of `CriticFigures`."""
    trained: int = 0
    """Rows of the policy."""
    refill: int = 0


GOOD = TWO[0]
SCENARIOS = {
    "a full score is not criticised": Scenario(
        (GOOD, Task(100.0)), [[0, 1]], [["a0"]], {"full": 1, "critiques": 3}, 3
    ),
    "all have the full score": Scenario(
        (Task(100.0), Task(100.0)), [[0, 1]], [[]], {"full": 2, "critiques": 0}
    ),
    "an attempt that failed is left out": Scenario(
        (GOOD, Task(None)), [[0, 1]], [["a0"]], {"failed": 1, "attempts": 2}, 3
    ),
    "a refinement that failed leaves its group out": Scenario(
        (GOOD, Task(0.0, "abc", ())), [[0, 1]], [["a0", "a1"]], {"failed": 1, "critiques": 6}, 3
    ),
    "what is no critique is not tried": Scenario(
        (GOOD, Task(0.0, "a-.", (50.0,))), [[0, 1]], [["a0", "a1"]],
        {"malformed": 1, "silent": 1, "failed": 0}, 3,
    ),
    "nothing usable was said": Scenario(
        (GOOD, Task(0.0, "---")), [[0, 1]], [["a0", "a1"]], {"malformed": 3, "failed": 0}, 3
    ),
    "tasks that teach nothing are replaced": Scenario(
        (GOOD, Task(100.0), GOOD), [[0, 1], [2]], [["a0"], ["a2"]], {"full": 1}, 6, refill=1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_left_out_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    scenario = SCENARIOS[name]
    recipe = RlRecipe(
        critic="trained", groups=2, group_size=3, refill=scenario.refill, minibatches=1,
        reward="score",
    )  # fmt: skip
    batches, played, critiques = made(tmp_path, scenario.tasks, monkeypatch, Scorer(), recipe)
    batch = batches.make(0, "base")
    assert (played.begun, critiques.asked) == (scenario.begun, scenario.asked)
    assert batch.critic is not None
    for count, wanted in scenario.counts.items():
        assert getattr(batch.critic.figures, count) == wanted, count
    assert batch.trained == scenario.trained


def test_a_frozen_critic_is_measured_and_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, _, _ = made(tmp_path, TWO, monkeypatch, Frozen())
    batch = batches.make(0, "base")
    assert batch.critic is not None and batch.trained == 6
    assert batch.critic.parts == [[], []]
    assert batch.critic.figures.trained_tokens == 0 and batch.critic.figures.gain > 0


def test_a_kept_critique_of_an_attempt_that_was_erased_since_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes on reads the critiques that it had; the erased attempt has no score."""
    tasks = [GOOD, Task(None)]
    batches, played, critiques = made(tmp_path, tasks, monkeypatch, Scorer())
    kept = [criticised(f"a{number}", GOOD) for number in range(2)]
    monkeypatch.setattr(critiques, "criticise", lambda *_: kept)
    batch = batches.make(0, "base")
    assert list(played.told) == ["a0"] and batch.trained == 3


GAINS = {
    "it never pays to say nothing": ("a-b", (100.0, 50.0), [LN(6), 0.0, 0.0]),
    "nor where the others did harm": ("a-b", (0.0, 50.0), [LN(0.6 / 1.1), LN(0.6 / 1.1), 0.0]),
    "nor to call a bad attempt good": ("a.", (0.0,), [LN(0.6 / 1.1), LN(0.6 / 1.1)]),
    "all say nothing": ("--", (), [0.0, 0.0]),
}


@pytest.mark.parametrize("name", GAINS)
def test_gains_of_critiques(name: str) -> None:
    said, refined, wanted = GAINS[name]
    assert criticised("a0", Task(50.0, said)).gains(refined, RECIPE) == pytest.approx(wanted)


def test_the_linear_gain_is_the_difference() -> None:
    recipe = RlRecipe(critic="trained", gain="linear")
    assert criticised("a0", Task(50.0, "ab")).gains((100.0, 0.0), recipe) == [0.5, -0.5]


def test_critiques_that_gained_alike_teach_nothing() -> None:
    group = RolloutGroup(update=0, batch=0, split="train", index=0, policy="base", refines="a0")
    members = tuple(ScoredRollout(f"r{n}", 50.0, 9) for n in range(3))
    alike = RefinedAttempt(criticised("a0", Task(50.0)), GroupOutcome(group, members, (), 3))
    assert critique_rows(alike, RECIPE) == []
