"""Policies, activations and training runs: what there is, what engines sample with, and the JSON.

Rows and bodies of the journal only. Names, folders and how far a run has come are files:
`policy_and_run_files`. Keys of the JSON are stable: one may be added, never renamed or taken away.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from houston_shared.hub_models import hub_origin
from houston_shared.policy_and_run_files import TrainingProgress
from houston_shared.records import PURIFIED_ENGINE
from houston_shared.store.journal_events import (
    ReadPlan,
    RowRecord,
    RunSql,
    decode_body,
    read_record_at,
    select_first_record,
    select_records,
)
from houston_shared.store.training_event_bodies import PolicyRegistered, TrainingQueued
from houston_shared.times_and_counts import iso_time

UNFINISHED_STATES = "('queued', 'running', 'paused')"


class PolicyRow(RowRecord, frozen=True):
    """A row of `policies`."""

    name: str
    family: str
    number: int
    kind: str
    """`base`, `lora`, `full` or `reward`."""
    base: str
    """Folder of the model that an adapter fits; its own otherwise."""
    base_hash: str
    hash: str
    folder: str
    """In the home's `policies/`; empty for a base."""
    parent: str
    run: str
    manifest: str
    seq: int
    created_at: int
    """UTC microseconds."""


class ActivationRow(RowRecord, frozen=True):
    """A row of `activations`."""

    seq: int
    engine: str
    policy: str
    """Empty for the engine's own model."""
    rollback: int
    state: str
    """`asked`, `active` or `failed`."""
    reason: str
    by: str
    at: int
    ended_at: int | None


class PolicyUse(NamedTuple):
    """Unfinished rollouts of one engine that sample with one policy."""

    engine: str
    policy: str
    """Empty for the engine's own model."""
    rollouts: tuple[str, ...]


def list_policies() -> ReadPlan[list[PolicyRow]]:
    """All policies, by family and number."""
    return (yield from select_records(PolicyRow, "policies ORDER BY family, number"))


def find_policy(name: str) -> ReadPlan[PolicyRow | None]:
    """The policy of that name."""
    return (yield from select_first_record(PolicyRow, "policies WHERE name = ?", (name,)))


def find_policy_of_run(run: str) -> ReadPlan[PolicyRow | None]:
    """What came of a training run."""
    return (yield from select_first_record(PolicyRow, "policies WHERE run = ?", (run,)))


def read_policy_registration(policy: PolicyRow) -> ReadPlan[PolicyRegistered | None]:
    """What was said of it: recipe, metrics, files; None where that was erased or set aside."""
    erased = PolicyRegistered(by="", name="", kind="lora", base="", base_hash="", hash="")
    registration = yield from read_record_at(policy.seq, PolicyRegistered, erased)
    return registration if registration.name else None


def list_activations(engine: str = "", newest: int = 0) -> ReadPlan[list[ActivationRow]]:
    """Activations of an engine (or all), oldest first; only the `newest` where that is not 0."""
    source = "activations WHERE ? IN ('', engine) ORDER BY seq DESC LIMIT ?"
    return (yield from select_records(ActivationRow, source, (engine, newest or -1)))[::-1]


def was_activated(engine: str, policy: str) -> ReadPlan[bool]:
    """Whether an engine was given a policy at some time."""
    activations = yield from list_activations(engine)
    return any(each.policy == policy and each.state == "active" for each in activations)


def find_activation(seq: int) -> ReadPlan[ActivationRow | None]:
    """The activation that the event `seq` asked for."""
    return (yield from select_first_record(ActivationRow, "activations WHERE seq = ?", (seq,)))


def find_active_policy(engine: str) -> ReadPlan[str]:
    """What new rollouts of an engine sample with; empty for its own model."""
    rows = yield RunSql(
        "SELECT policy FROM activations WHERE engine = ? AND state = 'active'"
        " ORDER BY seq DESC LIMIT 1",
        (engine,),
    )
    return str(rows[0][0]) if rows else ""


def find_previous_policy(engine: str) -> ReadPlan[str | None]:
    """What an engine's new rollouts sampled with before the policy that is active now.

    Empty for its own model; None where there is nothing to take back. A rollback takes back what
    it took back: the next one goes one further.
    """
    stack = [""]
    for activation in (yield from list_activations(engine)):
        if activation.state != "active":
            continue
        if activation.rollback and len(stack) > 1:
            stack.pop()
        if stack[-1] != activation.policy:
            stack.append(activation.policy)
    return stack[-2] if len(stack) > 1 else None


def list_active_policies() -> ReadPlan[dict[str, str]]:
    """Engine → what its new rollouts sample with, for engines that have one."""
    rows = yield RunSql(
        "SELECT engine, policy FROM activations a WHERE state = 'active' AND policy != ''"
        " AND seq = (SELECT max(seq) FROM activations b WHERE b.engine = a.engine"
        " AND b.state = 'active') ORDER BY engine"
    )
    return dict(rows)


def list_displayed_policies() -> ReadPlan[dict[str, str]]:
    """The same for people: an engine that went back to its own model has that model's policy name.

    That is number 1 of the family that was last active on it: the activation proved it the same
    model. Not where that number is full weights of the home, which have an engine of their own.
    """
    active = yield from list_active_policies()
    own = yield RunSql(
        "SELECT a.engine, b.name FROM activations a JOIN policies p ON p.name = a.policy"
        " JOIN policies b ON b.family = p.family AND b.kind = 'base'"
        " AND b.hash NOT IN (SELECT hash FROM policies WHERE kind = 'full')"
        " WHERE a.seq = (SELECT max(seq) FROM activations c WHERE c.engine = a.engine"
        " AND c.state = 'active' AND c.policy != '') ORDER BY a.engine"
    )
    return {**dict(own), **active}


def list_policy_uses() -> ReadPlan[list[PolicyUse]]:
    """Which policies unfinished rollouts sample with."""
    rows = yield RunSql(
        f"SELECT engine, policy, id FROM rollouts WHERE state IN {UNFINISHED_STATES}"
        " UNION SELECT json_extract(value, '$.engine'), json_extract(value, '$.policy'),"
        f" rollouts.id FROM rollouts, json_each(role_engines) WHERE state IN {UNFINISHED_STATES}"
        " ORDER BY 1, 2, 3"
    )
    by: dict[tuple[str, str], list[str]] = {}
    for engine, policy, rollout in rows:
        by.setdefault((engine, policy), []).append(rollout)
    return [PolicyUse(*key, tuple(rollouts)) for key, rollouts in by.items()]


def count_sampled_tokens() -> ReadPlan[dict[str, int]]:
    """Policy → tokens that were sampled with it; empty for engines' own models."""
    rows = yield RunSql(
        "SELECT policy, coalesce(sum(sampled_ids), 0) FROM samples WHERE engine <> ?"
        " GROUP BY policy",
        (PURIFIED_ENGINE,),
    )
    return {policy: int(tokens) for policy, tokens in rows}


def find_full_weights_engine(name: str) -> ReadPlan[tuple[PolicyRow, str] | None]:
    """Full weights of that name, and the engine whose settings they are served with.

    None for what is no policy with full weights that somebody activated.
    """
    policy = yield from find_policy(name)
    if policy is None or policy.kind != "full":
        return None
    rows = yield RunSql(
        "SELECT engine FROM activations WHERE policy = ? AND state != 'failed'"
        " ORDER BY seq DESC LIMIT 1",
        (name,),
    )
    return (policy, str(rows[0][0])) if rows else None


class _RequestField(msgspec.Struct):
    request: str = ""


def find_activation_request(request: str) -> ReadPlan[int]:
    """The event that asked for an activation under this key; 0 for none."""
    rows = yield RunSql(
        "SELECT a.seq, e.body FROM activations a JOIN events e ON e.seq = a.seq"
        " WHERE e.body IS NOT NULL ORDER BY a.seq DESC LIMIT 100"
    )
    for seq, body in rows:
        if decode_body(seq, "activation", body, _RequestField).request == request:
            return int(seq)
    return 0


def find_policies_before_run(run: str) -> ReadPlan[dict[str, str]]:
    """Engine → what its new rollouts sampled with before a run gave it versions of its own.

    Only engines whose newest activation the run asked for, and that had something else before.
    The keys of a run's activations begin with its id.
    """
    rows = yield RunSql(
        "SELECT a.seq, a.engine, a.policy, e.body FROM activations a JOIN events e ON e.seq = a.seq"
        " WHERE a.state != 'failed' AND e.body IS NOT NULL ORDER BY a.seq"
    )
    before: dict[str, str] = {}
    run_policies: dict[str, str] = {}
    for seq, engine, policy, body in rows:
        activation = decode_body(seq, "activation", body, _RequestField)
        if activation.request.startswith(f"{run}/"):
            run_policies[engine] = policy
        else:
            before[engine] = policy
            run_policies.pop(engine, None)
    return {
        engine: before.get(engine, "")
        for engine, policy in run_policies.items()
        if policy != before.get(engine, "")
    }


_ALGORITHMS = {"dapo": ("grpo", "echo"), "echo": ("critic",)}
"""Kind of a run → what else than that its trainer trains by."""


class TrainingRunRow(RowRecord, frozen=True):
    """A row of `training_runs`."""

    id: str
    kind: str
    state: str
    reason: str
    alone: int
    """Whether somebody runs it beside the daemon."""
    cancelling: str
    """Who asked to cancel it while its process lives."""
    policy: str
    """What came of it; empty while nothing did."""
    starts: int
    """Processes that it took."""
    by: str
    seq: int
    queued_at: int
    started_at: int | None
    ended_at: int | None
    last_seq: int

    @property
    def algorithm(self) -> str:
        """The training algorithm, as shown to people: `sft`, `prm`, `dapo`, `grpo`, `echo`, or
        `critic` (on what people said). The kind names the trainer. Where algorithms share a
        trainer, the run's id begins with the algorithm."""
        begins = self.id.partition("-")[0]
        return begins if begins in _ALGORITHMS.get(self.kind, ()) else self.kind


def list_training_runs(unfinished: bool = False) -> ReadPlan[list[TrainingRunRow]]:
    """All training runs, oldest first; only those that have not ended where asked."""
    source = "training_runs WHERE NOT ? OR state IN ('queued', 'running') ORDER BY seq"
    return (yield from select_records(TrainingRunRow, source, (unfinished,)))


def find_training_run(id: str) -> ReadPlan[TrainingRunRow | None]:
    """The run of that name."""
    return (yield from select_first_record(TrainingRunRow, "training_runs WHERE id = ?", (id,)))


def list_unfinished_rollouts(run: str) -> ReadPlan[list[str]]:
    """Ids of the rollouts that a training run started and that have not ended."""
    rows = yield RunSql(  # what begins with the run and a slash, by the index
        "SELECT id FROM rollouts WHERE request > ?1 || '/' AND request < ?1 || '0'"
        f" AND state IN {UNFINISHED_STATES} ORDER BY id",
        (run,),
    )
    return [id for (id,) in rows]


def read_training_request(run: TrainingRunRow) -> ReadPlan[TrainingQueued | None]:
    """What was asked of it; None where that was erased or set aside."""
    erased = TrainingQueued(by="", run="", kind="sft")
    request = yield from read_record_at(run.seq, TrainingQueued, erased)
    return request if request.run else None


JsonObject = dict[str, Any]


def policy_json(
    policy: PolicyRow, active: Mapping[str, str], used: Mapping[str, int], tokens: int
) -> JsonObject:
    """A line of `policy list --json`.

    active: engine → policy. used: policy → rollouts that have not ended. tokens: sampled with it.
    """
    return {
        "policy": policy.name,
        "kind": policy.kind,
        "parent": policy.parent or None,
        "base": policy.base,
        "base_hash": policy.base_hash,
        "hash": policy.hash,
        "run": policy.run or None,
        "manifest": policy.manifest or None,
        "active": sorted(engine for engine, name in active.items() if name == policy.name),
        "rollouts": used.get(policy.name, 0),
        "tokens": tokens,
        "at": iso_time(policy.created_at),
    }


def registration_json(registration: PolicyRegistered | None) -> JsonObject:
    """What `policy show --json` has besides."""
    if registration is None:
        return {"recipe": None, "metrics": None, "files": None, "erased": True}
    return {
        "recipe": registration.recipe,
        "metrics": registration.metrics,
        "files": registration.files,
        "rank": registration.rank or None,
        "engines": list(registration.engines),
        "note": registration.note,
        "by": registration.by,
        "version": registration.version,
        "origin": registration.origin or None,
        "base_origin": registration.base_origin or None,
    }


def activation_json(activation: ActivationRow) -> JsonObject:
    """How an engine came to a policy: `policy activate --json`, and in `policy show --json`."""
    return {
        "activation": activation.seq,
        "engine": activation.engine,
        "policy": activation.policy or None,
        "rollback": bool(activation.rollback),
        "state": activation.state,
        "reason": activation.reason,
        "by": activation.by,
        "at": iso_time(activation.at),
        "ended_at": activation.ended_at and iso_time(activation.ended_at),
    }


def training_run_json(run: TrainingRunRow, progress: TrainingProgress | None) -> JsonObject:
    """A line of `train list --json`."""
    return {
        "run": run.id,
        "kind": run.algorithm,
        "state": run.state,
        "reason": run.reason,
        "alone": bool(run.alone),
        "policy": run.policy or None,
        "starts": run.starts,
        "by": run.by,
        "queued_at": iso_time(run.queued_at),
        "started_at": run.started_at and iso_time(run.started_at),
        "ended_at": run.ended_at and iso_time(run.ended_at),
        "progress": msgspec.to_builtins(progress) if progress else None,
    }


def training_request_json(request: TrainingQueued | None) -> JsonObject:
    """What `train show --json` has besides."""
    if request is None:
        return {"recipe": None, "erased": True}
    return {
        "name": request.name,
        "parent": request.parent or None,
        "base": request.base,
        "base_origin": hub_origin(request.base) or None,
        "rollouts": list(request.rollouts),
        "manifest": request.manifest or None,
        "recipe": request.recipe,
        "gpus": request.gpus,
        "share_gpus": request.share_gpus,
    }
