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
from houston_shared.store.rollout_queries import RolloutCost, RolloutRow, TaskRow, role_engines
from houston_shared.times_and_counts import iso_time

if TYPE_CHECKING:
    from houston_shared.task import LoadedTask


JsonDict = dict[str, Any]


def task_json(task: TaskRow, edited: bool, problem: str) -> JsonDict:
    """A line of `task list --json`; edited, problem: how its file stands now."""
    return {
        "task": task.name,
        "rollouts": task.rollouts,
        "running": task.running,
        "best_score": task.best_score,
        "first_seen": iso_time(task.first_seen),
        "edited": edited,
        "problem": problem,
    }


def packaged_task_json(loaded: "LoadedTask") -> JsonDict:
    """A line of `task list --packaged --json`."""
    named, domain, world = loaded.folder.name, loaded.task.domain, loaded.task.environment
    return {"task": named, "domain": domain, "environment": world, "folder": str(loaded.folder)}


def rollout_json(row: RolloutRow) -> JsonDict:
    """A line of `rollout list --json`, and the start of `rollout show --json`."""
    return {
        "rollout": row.id,
        "task": row.task,
        "state": row.state,
        "paused_by": row.paused_by,
        "reason": row.reason,
        "cancelling": row.cancelling,
        "engine": row.engine,
        "policy": row.policy,
        **({"role_engines": own} if (own := role_engines(row)) else {}),
        "group": row.group_id,
        "parent": {"rollout": row.parent, "step": row.parent_step} if row.parent else None,
        "sandbox": row.sandbox,
        "steps": row.steps,
        "forks": row.forks,
        "errors": row.errors,
        "evaluations": row.evaluations,
        "best_score": row.best_score,
        "last_score": row.last_score,
        "final_score": row.last_score if row.state in ENDED_STATES else None,
        "active_seconds": row.active_us / 1_000_000,
        "activity": row.activity,
        "created_at": iso_time(row.created_at),
        "updated_at": iso_time(row.updated_at),
    }


def cost_json(cost: RolloutCost | None, currency: str) -> JsonDict:
    """What a line of `rollout list --json` says of money; null without a price."""
    cost = cost or RolloutCost()
    return {"cost": cost.samples, "review_cost": cost.review, "currency": currency}


def attention_json(need: Mapping[str, str]) -> JsonDict:
    """What a line of `rollout list --json` has besides: signals of the last steps, and why."""
    return {"attention": list(need), "attention_reasons": dict(need)}


def need_json(need: RolloutNeed) -> JsonDict:
    """What a line of `rollout list --json` says of people: why it needs one, who is there.

    `new_steps` is null for who was never there.
    """
    overview = need.overview
    claim, acted = overview.holding, overview.acted
    return {
        **attention_json(signals(list(overview.marked))),
        "need": need.weight,
        "reasons": [
            {"kind": r.kind, "text": r.text, "weight": r.weight, "step": r.step or None}
            for r in need.reasons
        ],
        "looking": sorted({look.name for look in overview.viewers}),
        "claim": claim_json(claim) if claim else None,
        "new_steps": overview.new_steps,
        "last_action": {"step": acted.step, "text": acted.text} if acted else None,
    }


def claim_json(claim: ClaimStatus) -> JsonDict:
    """`claim R --json` and `hand-over R --json`: `holder` is null where nobody holds it,
    `note_to` where the note is for anybody, `read_by` while nobody of those has read it."""
    return {
        "rollout": claim.rollout,
        "holder": claim.holder or None,
        "verified": claim.verified,
        "since": iso_time(claim.since),
        "note": claim.note,
        "note_by": claim.note_by or None,
        "note_at": iso_time(claim.note_at) if claim.note_at else None,
        "note_to": claim.note_to or None,
        "handed_over": claim.is_handed_over,
        "read_by": claim.read_by or None,
        "read_at": iso_time(claim.read_at) if claim.read_at else None,
    }


def attention_cost_json(rollout_id: str, cost: AttentionCost) -> JsonDict:
    """A line of `rollout people --json`."""
    return {
        "rollout": rollout_id,
        "name": cost.name,
        "verified": cost.verified,
        "active_seconds": cost.active_us / 1_000_000,
        "looked_seconds": cost.looked_us / 1_000_000,
        "visits": cost.visits,
        "messages": cost.messages,
        "words": cost.words,
    }


def guidance_json(guidance: Guidance) -> JsonDict:
    """`guide --json` and a line of `guidance R --json`.

    `revision` and `verified` are there only when they are not 1 and true.
    """
    fields: JsonDict = msgspec.to_builtins(guidance)
    return fields
