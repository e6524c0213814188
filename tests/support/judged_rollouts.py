"""Rollouts as a judge sees them, made by hand."""

import re
from collections.abc import Sequence

from houston_daemon.review.rollout_trace import RolloutTrace
from houston_shared.records import (
    DeliveredGuidance,
    ObservationBody,
    SampleBody,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.store.rollout_queries import ForkRow
from houston_shared.task import BudgetSettings, Task
from houston_shared.task_tables import RuleSettings

NO_RULES = RuleSettings()


def step(
    number: int,
    observation: str = "done",
    *,
    thought: str = "go on",
    command: str = "ls",
    guidance: str = "",
    score: float | None = None,
    failed: bool = False,
) -> StepRecord:
    name = "run_command" if score is None else "eval"
    call = ToolCall(id=f"{number}.0", name=name, arguments={"command": command})  # fmt: skip
    fields = {} if score is None else {"overall_score": score, "state": "scored"}
    kind = "eval" if score is not None else "command"
    heard = (DeliveredGuidance(id=f"g{number}", author="ann", text=guidance),) if guidance else ()
    result = ToolResult(call=call, kind=kind, success=not failed, text=observation, fields=fields)
    return StepRecord(
        step=number,
        attempt=1,
        sample_seq=number,
        sample=SampleBody(
            role="policy", parent_seq=None, kept=0, new_prompt_ids=None, token_ids=None,
            logprobs=None, logprob_kind="none", finish_reason="stop", policy="", engine="",
            parameters={}, drift="clean", thought=thought, calls=(call,),
        ),
        intents=(),
        results=(result,),
        observation=ObservationBody(tail=""),
        guidance=heard,
        at="2026-01-01T00:00:00Z",
        active_seconds=float(number),
    )  # fmt: skip


def trace(
    steps: Sequence[StepRecord],
    instructions: str = "Count the words.",
    forks: Sequence[int] = (),
    rules: RuleSettings = NO_RULES,
) -> RolloutTrace:
    """forks: steps before which the context was summarised."""
    rows = [
        ForkRow(
            number=number, step=before, k=1, first_kept_step=2, mechanical=0, sample_seq=None, seq=0
        )
        for number, before in enumerate(forks, 1)
    ]
    task = Task(name="probe", instructions=instructions, budget=BudgetSettings(), rules=rules)
    return RolloutTrace("r-1", task, instructions, {}, tuple(steps), tuple(rows), True)


def read_back(text: str, key: str) -> dict[int, str]:
    """What stands in each frame of this key, by step: proves what a reader would take for one."""
    frames = re.findall(
        rf"^\[{key} step (\d+) begins(?:, context only)?\]\n(.*?)\n\[{key} step \1 ends\]$",
        text,
        re.MULTILINE | re.DOTALL,
    )
    return {int(number): inside for number, inside in frames}
