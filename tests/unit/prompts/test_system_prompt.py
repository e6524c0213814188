"""What the agent is told of its budgets is plain English, whatever the numbers."""

import msgspec
import pytest

from houston_daemon.agent.rollout_budgets import (
    ActiveClock,
    EvaluationScores,
    RolloutBudgets,
    observation_tail,
)
from houston_daemon.prompts.system_prompt import system_prompt, task_message
from houston_shared.task import BudgetSettings, Task
from houston_shared.task_tables import EvaluationSettings

SAID = {
    "one of each": ((1, 3600, 1), "[You have 1 step, 1 hour of active time, 1 evaluation.]"),
    "several": ((30, 7200, 3), "[You have 30 steps, 2 hours of active time, 3 evaluations.]"),
    "parts": ((2, 1800, 0), "[You have 2 steps, 30 minutes of active time, 0 evaluations.]"),
    "short": ((12, 100, 1), "[You have 12 steps, 1.67 minutes of active time, 1 evaluation.]"),
    "seconds": ((12, 5, 1), "[You have 12 steps, 5 seconds of active time, 1 evaluation.]"),
    "days": ((12, 172_800, 1), "[You have 12 steps, 48 hours of active time, 1 evaluation.]"),
    "many": ((1234567, 5400, 2), "[You have 1234567 steps, 1.5 hours of active time, 2 eval"),
}


@pytest.mark.parametrize("case", SAID)
def test_budgets_are_counted_in_words(case: str) -> None:
    (steps, seconds, evaluations), sentence = SAID[case]
    budget = BudgetSettings(steps=steps, active_seconds=seconds, evaluations=evaluations)
    task = Task(name="t", budget=budget, evaluate=EvaluationSettings(command="./score"))
    assert sentence in task_message("Do it.", task)
    without = msgspec.structs.replace(task, evaluate=EvaluationSettings())
    assert "evaluation" not in task_message("Do it.", without)


@pytest.mark.parametrize(
    ("environment", "tools", "told"),
    [
        ("workstation", (), True),
        ("workstation", ("eval", "finish"), True),
        ("workstation", ("run_command", "finish"), False),
        ("mcp", ("server.look",), True),  # there `eval` is beside the tools that a task names
    ],
)
def test_an_agent_is_told_of_scores_only_where_it_can_ask_for_one(
    environment: str, tools: tuple[str, ...], told: bool
) -> None:
    task = Task(
        name="t",
        environment=environment,
        tools=tools,
        budget=BudgetSettings(evaluations=3),
        evaluate=EvaluationSettings(command="./score"),
    )
    assert ("`eval`" in system_prompt(task)) is told
    assert ("evaluation" in task_message("Do it.", task)) is told
    budgets = RolloutBudgets(task, ActiveClock(0), EvaluationScores(best=1.0, last=1.0))
    tail = observation_tail(1, budgets)
    assert ("evaluations left" in tail) is told and ("score last" in tail) is told
