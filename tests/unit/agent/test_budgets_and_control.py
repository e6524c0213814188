"""Pure decisions of the loop: guidance, limits, budgets, clock, the end."""

import asyncio
from typing import Any

import pytest

from houston_daemon.agent import agent_loop
from houston_daemon.agent.rollout_budgets import (
    ActiveClock,
    EvaluationScores,
    RolloutBudgets,
    observation_tail,
)
from houston_daemon.agent.worker_control import (
    ControlState,
    WorkerExit,
    call_stop_reason,
    raise_if_exiting,
    should_stop_sample,
)
from houston_daemon.prompts.token_limits import check_head_fits, compute_token_limits
from houston_shared.errors import HoustonError
from houston_shared.records import (
    DeliveredGuidance,
    ObservationBody,
    TaskRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.task import BudgetSettings, Task, parse_task_record
from houston_shared.task_tables import EvaluationSettings
from houston_shared.wire import QueuedGuidance, WorkerControl

SAID = (DeliveredGuidance(id="g", author="ann", text="wait"),)


@pytest.mark.parametrize(
    ("urgency", "cuts_sample", "ends_call"),
    [
        (None, False, ""),
        ("next", False, ""),
        ("wake", False, "wake"),
        ("interrupt", True, "interrupt"),
    ],
)
def test_what_guidance_does_at_once(urgency: Any, cuts_sample: bool, ends_call: str) -> None:
    control = WorkerControl(waiting=QueuedGuidance(count=1, urgency=urgency))
    assert should_stop_sample(control) is cuts_sample
    assert call_stop_reason(control) == ends_call


@pytest.mark.parametrize(
    ("control", "reason"),
    [
        (WorkerControl(), None),
        (WorkerControl(pause=True), None),
        (WorkerControl(drain=True), "drain"),
        (WorkerControl(cancel=True), "cancel"),
        (WorkerControl(drain=True, cancel=True), "cancel"),
    ],
)
def test_when_a_worker_leaves(control: WorkerControl, reason: str | None) -> None:
    if reason is None:
        raise_if_exiting(control)
    else:
        with pytest.raises(WorkerExit) as left:
            raise_if_exiting(control)
        assert left.value.reason == reason


async def test_a_change_of_control_wakes_whoever_waits() -> None:
    state = ControlState()
    waiting = asyncio.create_task(state.wait((), None))
    await asyncio.sleep(0)
    state.update(WorkerControl())
    await asyncio.sleep(0.01)
    assert not waiting.done(), "the same state is no change"
    state.update(WorkerControl(pause=True))
    await asyncio.wait_for(waiting, 60)


async def test_a_process_told_to_go_stays_told() -> None:
    state = ControlState()
    state.drain()
    state.update(WorkerControl(waiting=QueuedGuidance(count=1, urgency="wake")))
    assert state.current.drain
    assert state.current.waiting.count == 1


def test_active_time_leaves_out_what_is_excluded() -> None:
    now = [0]
    clock = ActiveClock(5_000_000, lambda: now[0])
    now[0] = 2_000_000_000
    assert clock.microseconds() == 7_000_000
    with clock.excluded():
        now[0] += 10**12
        with clock.excluded():
            now[0] += 10**12
        clock.exclude(True)
    now[0] += 10**12
    assert clock.microseconds() == 7_000_000, "one hold is left"
    clock.exclude(False)
    now[0] += 500_000_000
    assert clock.microseconds() == 7_500_000


async def test_active_time_leaves_out_a_stop_of_the_process() -> None:
    now = [0]
    clock = ActiveClock(0, lambda: now[0])
    watching = asyncio.create_task(clock.watch())
    await asyncio.sleep(0)
    now[0] += 2 * 10**9
    assert clock.microseconds() == 2_000_000, "a second that comes late is work"
    now[0] += 60 * 10**9
    assert 2_000_000 <= clock.microseconds() < 3_000_000, "only what was computed meanwhile"
    now[0] += 10**9
    assert clock.microseconds() > 3_000_000, "and it goes on"
    watching.cancel()


@pytest.mark.parametrize(
    ("name", "budget", "window", "expected"),
    [
        ("large window", {}, 131_072, (100_000, 1024, 10_000)),
        ("8,192 tokens", {}, 8_192, (5_120, 1024, 2048)),
        ("tiny window", {}, 2_048, (1024, 512, 512)),
        ("no window", {}, None, (100_000, 1024, 10_000)),
        ("small context for a test", {"context_tokens": 2200}, 8_192, (2200, 1024, 550)),
        ("small answers", {"answer_tokens": 160}, 8_192, (5984, 160, 2048)),
    ],
)
def test_limits_fit_the_window(
    name: str, budget: dict[str, int], window: int | None, expected: tuple[int, int, int]
) -> None:
    found = compute_token_limits(BudgetSettings(**budget), window)
    assert (found.context, found.answer, found.observation) == expected, name
    if window is not None:
        assert found.context + found.answer + found.observation <= window


def test_a_head_that_leaves_no_room_is_refused_with_the_numbers() -> None:
    fitting = compute_token_limits(BudgetSettings(), 2048)
    check_head_fits(1024, fitting)
    with pytest.raises(HoustonError, match=r"1025 .*2048"):
        check_head_fits(1025, fitting)
    check_head_fits(10**6, compute_token_limits(BudgetSettings(), None))


@pytest.mark.parametrize("window", [8_192, None])
def test_answers_that_could_only_be_cut_are_refused_by_their_own_name(window: int | None) -> None:
    with pytest.raises(HoustonError, match="An answer may have 16 tokens here") as problem:
        check_head_fits(683, compute_token_limits(BudgetSettings(answer_tokens=16), window))
    assert "budget.answer_tokens" in problem.value.next
    check_head_fits(683, compute_token_limits(BudgetSettings(answer_tokens=48), window))


def budgets(**changes: Any) -> RolloutBudgets:
    task = Task(
        name="t",
        budget=BudgetSettings(**{"steps": 5, "active_seconds": 100.0, "evaluations": 2, **changes}),
        evaluate=EvaluationSettings(command="score", seconds=30.0),
    )
    return RolloutBudgets(task, ActiveClock(40_000_000, lambda: 0), EvaluationScores())


def test_time_for_a_last_evaluation_is_set_aside_while_one_is_left() -> None:
    ours = budgets()
    assert ours.seconds_left == 30.0
    ours.scores.evaluations = 2
    assert ours.seconds_left == 60.0
    assert budgets(active_seconds=65.0).spent_budget(1) == "budget: active_seconds"
    assert budgets(active_seconds=75.0).spent_budget(1) == ""
    assert budgets().spent_budget(5) == "budget: steps"


def test_a_gain_is_a_better_score_and_the_time_it_came() -> None:
    scores, since = EvaluationScores(), []
    for at, score in enumerate((10.0, 10.0, None, 20.0, 5.0, 20.0), 1):
        scores.count_result(evaluation(score), float(at))
        since.append((scores.evaluations_since_best, scores.best_at_seconds))
    assert since == [(0, 1.0), (1, 1.0), (1, 1.0), (0, 4.0), (1, 4.0), (2, 4.0)]


def test_the_tail_is_one_line_with_what_is_left() -> None:
    ours = budgets()
    ours.scores.count_result(evaluation(40.0), 10.0)
    ours.scores.count_result(evaluation(30.0), 20.0)
    ours.scores.count_result(evaluation(None, counted=False), 30.0)
    text = observation_tail(3, ours, ("[note]",))
    assert text.splitlines()[0] == "[note]"
    assert text.splitlines()[1:] == [
        "[step 3 of 5; active 0:00:40, 0:01:00 left; evaluations left 0 of 2; "
        "score last 30, best 40]"
    ]


@pytest.mark.parametrize("key", ["active_seconds", "sleep_seconds", "command_seconds"])
@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "0", "1e10", "1e400"])
def test_a_budget_of_time_is_a_number_that_a_clock_can_reach(key: str, value: str) -> None:
    text = f'name = "t"\ninstructions = "x"\n[budget]\n{key} = {value}\n'
    record = TaskRecord(name="t", folder="", definition=text, instructions="x")
    with pytest.raises(HoustonError, match=key):
        parse_task_record(record)


@pytest.mark.parametrize("key", ["steps", "evaluations", "context_tokens", "minimum_steps"])
def test_a_budget_that_is_counted_is_bounded_too(key: str) -> None:
    text = f'name = "t"\ninstructions = "x"\n[budget]\n{key} = 99999999999999999999\n'
    record = TaskRecord(name="t", folder="", definition=text, instructions="x")
    with pytest.raises(HoustonError, match=key):
        parse_task_record(record)


def evaluation(score: float | None, counted: bool = True) -> ToolResult:
    fields = {"overall_score": score, "counted": counted}
    fields["state"] = "scored" if score is not None else "failed"
    return ToolResult(
        call=call("eval"), kind="eval", success=score is not None, text="", fields=fields
    )


def call(name: str) -> ToolCall:
    return ToolCall(id="1.0", name=name, arguments={})


def done(name: str, kind: str = "file", success: bool = True) -> ToolResult:
    return ToolResult(call=call(name), kind=kind, success=success, text="")


FINISH = done("finish", "finish")
REFUSED = done("finish", "finish", success=False)


@pytest.mark.parametrize(
    ("name", "finished", "results", "guidance", "step", "reason"),
    [
        ("goes on", False, [done("open_file")], (), 3, ""),
        ("finish", True, [FINISH], (), 3, "finish"),
        ("a person spoke as it finished", True, [FINISH], SAID, 3, ""),
        ("a person spoke at the last step", True, [FINISH], SAID, 5, "finish"),
        ("steps", True, [done("open_file")], SAID, 5, "budget: steps"),
        ("time", True, [done("open_file")], SAID, 3, "budget: active_seconds"),
        ("a refused finish at the last step", True, [REFUSED], (), 5, "budget: steps"),
    ],
)
def test_when_a_rollout_is_over(
    name: str,
    finished: bool,
    results: list[ToolResult],
    guidance: tuple[DeliveredGuidance, ...],
    step: int,
    reason: str,
) -> None:
    seen = ObservationBody(tail="", finished=finished)
    assert agent_loop.ending_reason(seen, results, guidance, step, budgets()) == reason, name


@pytest.mark.parametrize(
    ("name", "steps", "last", "wants"),
    [
        ("never scored", [], [FINISH], True),
        ("scored, nothing since", [([evaluation(5.0)], False)], [FINISH], False),
        ("scored, files changed since", [([evaluation(5.0)], False), ([done("edit_file")], True)],
         [FINISH], True),
        ("scored, looked since", [([evaluation(5.0)], False), ([done("open_file")], False)],
         [FINISH], False),
        ("scored, a job wrote as it slept", [([evaluation(5.0)], False), ([done("sleep")], True)],
         [FINISH], True),
        ("scored, slept since", [([evaluation(5.0)], False), ([done("sleep")], False)],
         [FINISH], False),
        ("edited and scored in one step", [([done("edit_file"), evaluation(5.0)], True)],
         [FINISH], False),
        ("scored and edited in one step", [([evaluation(5.0), done("edit_file")], True)],
         [FINISH], True),
        ("the evaluator failed", [([evaluation(None)], False)], [FINISH], True),
        ("scored in the last step", [], [evaluation(5.0), FINISH], False),
        ("edits in the last step", [([evaluation(5.0)], False)], [done("edit_file"), FINISH], True),
    ],
)  # fmt: skip
def test_the_newest_state_is_scored_once(
    name: str, steps: list[tuple[list[ToolResult], bool]], last: list[ToolResult], wants: bool
) -> None:
    unscored = agent_loop.UnscoredChanges()
    for results, changed in steps:
        unscored.note_step(results, changed)
    assert unscored.wants_score(last, budgets()) is wants, name
    none_left = budgets(evaluations=0)
    assert unscored.wants_score(last, none_left) is False
