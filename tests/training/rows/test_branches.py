"""Branches: what they share with others is trained once, whoever is exported with them."""

from collections.abc import Iterable

import pytest

from houston_daemon.training.rows.training_row import TokenRow
from tests.training.rows.played_rollouts import Family, Played, Stage
from tests.training.rows.test_trained_answers import turn


def trained(rows: list[TokenRow]) -> list[int]:
    return sorted(span.step for row in rows for span in row.spans if span.weight)


class Tree:
    """A parent, two branches of it, and a branch of the first."""

    def __init__(self, stage: Stage, family: Family, context: int) -> None:
        self.parent = stage.play(family, [turn(n) for n in range(1, 8)], context=context)
        self.first = stage.branch(self.parent, 4, [turn(n) for n in range(15, 18)])
        self.second = stage.branch(self.parent, 6, [turn(n) for n in range(27, 28)])
        self.third = stage.branch(self.first, 6, [turn(n) for n in range(37, 39)])
        self.all = (self.parent, self.first, self.second, self.third)

    def named(self, who: str) -> list[Played]:
        return [self.all["p123".index(letter)] for letter in who]


@pytest.fixture(scope="module", params=[100_000, 1_300], ids=["one context", "forks"])
def tree(request: pytest.FixtureRequest, stage: Stage, family: dict[str, Family]) -> Tree:
    return Tree(stage, family["glm45"], request.param)


@pytest.mark.parametrize(
    ("who", "steps"),
    [
        ("p", [range(1, 9)]),
        ("p1", [range(1, 9), range(5, 9)]),
        ("1p", [range(5, 9), range(1, 9)]),
        ("1", [range(1, 9)]),
        ("12", [range(1, 9), range(5, 9)]),
        ("21", [range(1, 9), range(5, 9)]),
        ("3", [range(1, 9)]),
        ("13", [range(1, 9), range(7, 9)]),
        ("31", [(1, 2, 3, 4, 7, 8), range(5, 9)]),  # 5 and 6 are the first branch's own
        ("23", [range(1, 9), range(5, 9)]),
        ("p123", [range(1, 9), range(5, 9), range(7, 9), range(7, 9)]),
    ],
)
def test_a_shared_step_is_trained_once(
    stage: Stage, tree: Tree, who: str, steps: list[Iterable[int]]
) -> None:
    played = tree.named(who)
    beside = [rollout.id for rollout in played]
    rows = [stage.rows(rollout, beside=beside) for rollout in played]
    policy = [
        sorted(s.step for row in mine for s in row.spans if s.weight and s.role == "policy")
        for mine in rows
    ]
    assert policy == [list(numbers) for numbers in steps]
    seqs = [s.sample_seq for mine in rows for row in mine for s in row.spans if s.weight]
    assert len(seqs) == len(set(seqs)), "summaries too"
    ids = [row.id for mine in rows for row in mine]
    assert len(ids) == len(set(ids))
    assert all(row.trained for mine in rows for row in mine), "no row of others' steps alone"
    chats = [stage.chats(rollout, beside=beside) for rollout in played]
    assert [row.id for mine in chats for row in mine] == ids


def test_what_a_parent_trains_stands_in_the_branch_with_a_reason(stage: Stage, tree: Tree) -> None:
    beside = [tree.parent.id, tree.first.id]
    rows = stage.rows(tree.first, beside=beside)
    shared = {s.step: s.why for row in rows for s in row.spans if s.step <= 4}
    assert shared
    assert set(shared.values()) == {f"trained with rollout {tree.parent.id}"}
    for row in rows:
        for span in row.spans:
            if span.weight:
                answer = tree.first.engine.answers[(span.role, span.step)]
                assert list(row.token_ids[: span.start]) == answer.prompt
                assert list(row.token_ids[span.start : span.end]) == answer.ids


def test_a_verdict_on_the_shared_past_holds_in_every_branch(
    stage: Stage, family: dict[str, Family]
) -> None:
    parent = stage.play(family["chatml"], [turn(n) for n in range(1, 5)])
    branch = stage.branch(parent, 3, [turn(14)])
    stage.judge(parent.id, 2, "mask", "rule")
    assert trained(stage.rows(branch, beside=[branch.id])) == [1, 3, 4, 5]


def test_an_error_that_was_found_after_a_judge_kept_the_step_is_not_trained(
    stage: Stage, family: dict[str, Family]
) -> None:
    played = stage.play(family["chatml"], [turn(n) for n in range(1, 5)])
    branch = stage.branch(played, 3, [turn(14)])
    for step in (1, 2, 3):
        stage.judge(played.id, step, "keep", "judge")
    stage.judge(played.id, 1, "mask", "rule", "blind_edit@1: a.py was changed")
    error = "error_observation@1: make: it was left running and ended with exit code 1 (step 4)"
    for step in (2, 3):
        stage.judge(played.id, step, "mask", "rule", error)
    stage.judge(played.id, 3, "keep")
    assert trained(stage.rows(played)) == [1, 3, 4, 5]
    assert trained(stage.rows(branch)) == [1, 3, 4, 5], "also where the past is shared"
    whys = {s.step: (s.why, s.by) for row in stage.rows(played) for s in row.spans if s.why}
    assert whys[2] == (f"mask: rule {error}", "rule")
