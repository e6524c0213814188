"""The JSON of tasks, rollouts, claims, cost and guidance, made in one place.

Every function takes records and gives a plain dict; nothing here reads a database. Keys are stable:
other programs rely on them, so one may be added, never renamed or taken away. Steps have theirs in
`step_json`, policies in `policy_queries`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from houston_shared.records import ENDED_STATES, Guidance
from houston_shared.store.attention_ranking import RolloutNeed
from houston_shared.store.attention_ranking import newest_signals as signals
from houston_shared.store.presence_queries import AttentionCost, ClaimStatus
from houston_shared.store.rollout_queries import RolloutRow, TaskRow
from houston_shared.times_and_counts import iso_time

if TYPE_CHECKING:
    from houston_shared.task import LoadedTask


JsonDict = dict[str, Any]


def task_json(one: TaskRow, edited: bool, problem: str) -> JsonDict:
    """A line of `task list --json`; edited, problem: how its file stands now."""
    return {
        "task": one.name,
        "rollouts": one.rollouts,
        "running": one.running,
        "best_score": one.best_score,
        "first_seen": iso_time(one.first_seen),
        "edited": edited,
        "problem": problem,
    }


def packaged_task_json(one: "LoadedTask") -> JsonDict:
    """A line of `task list --packaged --json`."""
    named, domain, world = one.folder.name, one.task.domain, one.task.environment
    return {"task": named, "domain": domain, "environment": world, "folder": str(one.folder)}


def rollout_json(one: RolloutRow) -> JsonDict:
    """A line of `rollout list --json`, and the start of `rollout show --json`."""
    return {
        "rollout": one.id,
        "task": one.task,
        "state": one.state,
        "paused_by": one.paused_by,
        "reason": one.reason,
        "cancelling": one.cancelling,
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
        "final_score": one.last_score if one.state in ENDED_STATES else None,
        "active_seconds": one.active_us / 1_000_000,
        "activity": one.activity,
        "created_at": iso_time(one.created_at),
        "updated_at": iso_time(one.updated_at),
    }


def attention_json(need: Mapping[str, str]) -> JsonDict:
    """What a line of `rollout list --json` has besides: signals of the last steps, and why."""
    return {"attention": list(need), "attention_reasons": dict(need)}


def need_json(one: RolloutNeed) -> JsonDict:
    """What a line of `rollout list --json` says of people: why it needs one, who is there.

    `new_steps` is null for who was never there.
    """
    standing = one.standing
    held, acted = standing.holding, standing.acted
    return {
        **attention_json(signals(list(standing.marked))),
        "need": one.weight,
        "reasons": [{"kind": r.kind, "text": r.text, "weight": r.weight} for r in one.reasons],
        "looking": sorted({look.name for look in standing.lookers}),
        "claim": claim_json(held) if held else None,
        "new_steps": standing.new_steps,
        "last_action": {"step": acted.step, "text": acted.text} if acted else None,
    }


def claim_json(one: ClaimStatus) -> JsonDict:
    """`claim R --json`: `holder` is null where nobody holds it."""
    return {
        "rollout": one.rollout,
        "holder": one.holder or None,
        "verified": one.verified,
        "since": iso_time(one.since),
        "note": one.note,
        "note_by": one.note_by or None,
        "note_at": iso_time(one.note_at) if one.note_at else None,
    }


def attention_cost_json(rollout_id: str, one: AttentionCost) -> JsonDict:
    """A line of `rollout people --json`."""
    return {
        "rollout": rollout_id,
        "name": one.name,
        "verified": one.verified,
        "active_seconds": one.active_us / 1_000_000,
        "looked_seconds": one.looked_us / 1_000_000,
        "visits": one.visits,
        "messages": one.messages,
        "words": one.words,
    }


def guidance_json(one: Guidance) -> JsonDict:
    """`guide --json` and a line of `guidance R --json`.

    `revision` and `verified` are there only when they are not 1 and true.
    """
    found: JsonDict = msgspec.to_builtins(one)
    return found
