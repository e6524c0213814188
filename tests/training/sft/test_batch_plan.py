"""Which rows come when: the same in every step, however they are packed and dealt out."""

from itertools import chain

import pytest

from houston_daemon.training.sft import batch_plan

LENGTHS = [5, 31, 12, 47, 9, 22, 64, 17, 38, 7]


def planned(**more: int) -> list[batch_plan.OptimizerStep]:
    settings = {"epochs": 2, "batch": 4, "budget": 64, "seed": 3} | more
    return batch_plan.plan_steps(LENGTHS, [1] * len(LENGTHS), **settings)


def rows(step: batch_plan.OptimizerStep) -> list[int]:
    return sorted(chain.from_iterable(chain.from_iterable(step.passes_per_process)))


@pytest.mark.parametrize("budget", [0, 20, 64, 10_000])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_step_has_the_same_rows_however_it_is_computed(budget: int, processes: int) -> None:
    expected = [rows(step) for step in planned()]
    steps = planned(budget=budget, processes=processes)
    assert [rows(step) for step in steps] == expected
    for step in steps:
        assert len(step.passes_per_process) == processes
        assert len({len(share) for share in step.passes_per_process}) == 1, (
            "collectives would wait for ever"
        )
        for pack in chain.from_iterable(step.passes_per_process):
            assert len(pack) < 2 or sum(LENGTHS[row] for row in pack) <= budget
        assert step.tokens == sum(LENGTHS[row] for row in rows(step))


def test_every_row_comes_once_an_epoch_and_in_another_order() -> None:
    steps = planned()
    assert [len(rows(step)) for step in steps] == [4, 4, 2, 4, 4, 2]
    first, second = (
        [row for step in half for row in rows(step)] for half in (steps[:3], steps[3:])
    )
    assert sorted(first) == sorted(second) == list(range(len(LENGTHS)))
    assert first != second
    assert [step.epoch for step in steps] == pytest.approx([0.4, 0.8, 1.0, 1.4, 1.8, 2.0])
    assert [rows(step) for step in planned(seed=4)] != [rows(step) for step in steps]


def test_rows_are_seen_as_often_as_the_recipe_says() -> None:
    times = [7 if row % 2 else 10 for row in range(len(LENGTHS))]
    steps = batch_plan.plan_steps(LENGTHS, times, epochs=1, batch=64, budget=0, seed=0)
    trained = [row for step in steps for row in rows(step)]
    assert [trained.count(row) for row in range(len(LENGTHS))] == times


def test_it_ends_after_the_steps_that_were_asked_for() -> None:
    assert len(planned(limit=4)) == 4
    assert planned(limit=4) == planned()[:4]


def test_work_is_dealt_out_evenly() -> None:
    lengths = [100] * 16
    (step,) = batch_plan.plan_steps(
        lengths, [1] * 16, epochs=1, batch=16, budget=10_000, seed=0, processes=4
    )
    assert [
        sum(lengths[row] for pack in share for row in pack) for share in step.passes_per_process
    ] == [400] * 4
