"""The JSON that other programs rely on (DESIGN §9), made in one place for commands and console.

Every function takes records and gives a plain dict; nothing here reads a database. Keys are stable:
one is added only with a default that older readers may ignore.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from houston_shared import observation
from houston_shared.clock import iso
from houston_shared.records import Call, Guidance, StepRecord
from houston_shared.store.queries.people import Verdict
from houston_shared.store.queries.rollouts import Rollout, Task

Json = dict[str, Any]


def task(one: Task) -> Json:
    """A line of `task list --json`."""
    return {
        "task": one.name,
        "rollouts": one.rollouts,
        "running": one.running,
        "best_score": one.best_score,
        "first_seen": iso(one.first_seen),
    }


def rollout(one: Rollout) -> Json:
    """A line of `rollout list --json`, and the start of `rollout show --json`."""
    return {
        "rollout": one.id,
        "task": one.task,
        "state": one.state,
        "paused_by": one.paused_by,
        "reason": one.reason,
        "engine": one.engine,
        "policy": one.policy,
        "group": one.group_id,
        "parent": {"rollout": one.parent, "step": one.parent_step} if one.parent else None,
        "sandbox": one.sandbox,
        "steps": one.steps,
        "forks": one.forks,
        "errors": one.errors,
        "evaluations": one.evaluations,
        "best_score": one.best_score,
        "last_score": one.last_score,
        "active_seconds": one.active_us / 1_000_000,
        "activity": one.activity,
        "created_at": iso(one.created_at),
        "updated_at": iso(one.updated_at),
    }


def guidance(one: Guidance) -> Json:
    """`guide --json` and a line of `guidance R --json`.

    `revision` and `verified` are there only when they are not 1 and true.
    """
    found: Json = msgspec.to_builtins(one)
    return found


def call(one: Call) -> Json:
    """A call of a step."""
    return {"id": one.id, "name": one.name, "arguments": one.arguments}


def seen(step: StepRecord) -> str:
    """The observation of a step as the model sees it; empty while the step is open."""
    if step.observation is None:
        return ""
    return observation.text(step.results, step.observation.tail, step.guidance)


def step(rollout: str, one: StepRecord, verdict: Verdict | None = None) -> Json:
    """A line of `steps R --json`."""
    closed = one.observation
    return {
        "rollout": rollout,
        "step": one.step,
        "thought": one.sample.thought,
        "calls": [call(each) for each in one.sample.calls],
        "observation": seen(one),
        "guidance": [{"id": g.id, "author": g.author, "text": g.text} for g in one.guidance],
        "files": [
            {"path": f.path, "added": f.added, "removed": f.removed}
            for f in (closed.files if closed else ())
        ],
        "verdict": None if verdict is None else "keep" if verdict.keep else "mask",
        "attention": list(closed.attention) if closed else [],
        "policy": one.sample.policy,
        "at": one.at,
        "active_seconds": one.active_seconds,
    }


def steps(
    rollout: str, found: list[StepRecord], verdicts: Mapping[tuple[int, int], Verdict]
) -> list[Json]:
    """Lines of `steps R --json`; verdicts by (step, attempt)."""
    return [step(rollout, one, verdicts.get((one.step, one.attempt))) for one in found]
