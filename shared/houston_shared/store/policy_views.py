"""The JSON of policies, activations and training runs, made in one place.

As in `views`: takes records and gives a plain dict; keys may be added, never taken away.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from houston_shared.clock import iso
from houston_shared.store.bodies_training import PolicyRegistered, TrainingAsked
from houston_shared.store.queries.policies import Activation, Policy
from houston_shared.store.queries.training_runs import TrainingRun
from houston_shared.training_progress import Progress

Json = dict[str, Any]


def policy(one: Policy, active: Mapping[str, str], used: Mapping[str, int], tokens: int) -> Json:
    """A line of `policy list --json`.

    active: engine → policy. used: policy → rollouts that have not ended. tokens: sampled with it.
    """
    return {
        "policy": one.name,
        "kind": one.kind,
        "parent": one.parent or None,
        "base": one.base,
        "base_hash": one.base_hash,
        "hash": one.hash,
        "run": one.run or None,
        "manifest": one.manifest or None,
        "active": sorted(engine for engine, name in active.items() if name == one.name),
        "rollouts": used.get(one.name, 0),
        "tokens": tokens,
        "at": iso(one.created_at),
    }


def registered(said: PolicyRegistered | None) -> Json:
    """What `policy show --json` has besides."""
    if said is None:
        return {"recipe": None, "metrics": None, "files": None, "erased": True}
    return {
        "recipe": said.recipe,
        "metrics": said.metrics,
        "files": said.files,
        "rank": said.rank or None,
        "engines": list(said.engines),
        "note": said.note,
        "by": said.by,
        "version": said.version,
    }


def activation(one: Activation) -> Json:
    """How an engine came to a policy: `policy activate --json`, and in `policy show --json`."""
    return {
        "activation": one.seq,
        "engine": one.engine,
        "policy": one.policy or None,
        "rollback": bool(one.rollback),
        "state": one.state,
        "reason": one.reason,
        "by": one.by,
        "at": iso(one.at),
        "ended_at": one.ended_at and iso(one.ended_at),
    }


def run(one: TrainingRun, progress: Progress | None) -> Json:
    """A line of `train list --json`."""
    return {
        "run": one.id,
        "kind": one.kind,
        "state": one.state,
        "reason": one.reason,
        "alone": bool(one.alone),
        "policy": one.policy or None,
        "starts": one.starts,
        "by": one.by,
        "queued_at": iso(one.queued_at),
        "started_at": one.started_at and iso(one.started_at),
        "ended_at": one.ended_at and iso(one.ended_at),
        "progress": msgspec.to_builtins(progress) if progress else None,
    }


def asked(said: TrainingAsked | None) -> Json:
    """What `train show --json` has besides."""
    if said is None:
        return {"recipe": None, "erased": True}
    return {
        "name": said.name,
        "parent": said.parent or None,
        "base": said.base,
        "rollouts": list(said.rollouts),
        "manifest": said.manifest or None,
        "recipe": said.recipe,
        "gpus": said.gpus,
        "share_gpus": said.share_gpus,
    }
