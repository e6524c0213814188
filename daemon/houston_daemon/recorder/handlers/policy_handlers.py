"""Requests of operators and the supervisor about policies.

Register a policy, activate one on an engine, choose the policy that a new rollout samples with. An
activation is only noted here: the supervisor tries it (`service.policy_activation`) and reports the
result.
"""

import os
from collections.abc import Collection
from typing import Any

import msgspec

from houston_daemon.recorder import journal_writer
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_handle import RunnableChanged
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import UNCHANGED, check_request_key, denial
from houston_daemon.training.policies import policy_constraints
from houston_shared import wire
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import NotFound
from houston_shared.policy_and_run_files import (
    BASE_MODEL,
    PolicyName,
    check_family_name,
    parse_policy_name,
    policies_folder,
)
from houston_shared.records import RoleEngine, RolloutSpec, spec_of_role
from houston_shared.secret_redaction import redact, redact_all
from houston_shared.store import policy_queries
from houston_shared.store import training_event_bodies as bodies
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.wire import RequestStored


def register_policy(store: Store, message: wire.RegisterPolicy, author: Author) -> RequestStored:
    """Take note of a policy whose files lie ready; of its family's base model, too, if it is new.

    A family has one base model. The same request again changes nothing.
    """
    policy, request = message.policy, check_request_key(message.request)
    name = parse_policy_name(policy.name)
    check_family_name(name.family)
    if policy_row := store.read(policy_queries.find_policy(policy.name)):
        if policy_row.hash == policy.hash and policy_row.run == policy.run:
            return RequestStored(seq=policy_row.seq)
        raise denial(f"A policy {policy.name} already exists.", "houston policy list")
    _check_lineage(store, policy, name)
    fields: dict[str, Any] = {"by": author.person_label, "request": request, **author.event_fields}
    if store.read(policy_queries.find_policy(str(name._replace(number=1)))) is None:
        base = bodies.PolicyRegistered(
            **fields,
            name=str(name._replace(number=1)),
            kind="base",
            base=policy.base,
            base_hash=policy.base_hash,
            base_origin=policy.base_origin,
            hash=policy.base_hash,
            engines=policy.engines,
            version=policy.version,
        )
        store.journal.append(EventKey(), "policy", base)
    body = msgspec.structs.replace(
        policy, **fields, recipe=redact_all(policy.recipe), note=redact(policy.note)
    )
    return RequestStored(
        seq=store.journal.append(
            EventKey(), "policy", journal_writer.prepare_body(store.home, body)
        )
    )


def _check_lineage(store: Store, policy: bodies.PolicyRegistered, name: PolicyName) -> None:
    """Raise HoustonError for a lineage that does not hold, or files that are not there."""
    if policy.kind == "base" or name.number == 1:
        raise denial(
            "A base model becomes number 1 of a family with the first policy trained from it."
        )
    if (
        policy.folder != policy.name
        or not (policies_folder(store.home) / policy.folder / "lineage.json").is_file()
    ):
        raise denial(f"The home has no folder policies/{policy.name} with a lineage.json.")
    run = store.read(policy_queries.find_training_run(policy.run)) if policy.run else None
    if run is not None and run.state == "cancelled":
        raise denial(
            f"Training {run.id} was cancelled: it cannot become a policy.",
            f"houston train sft --resume {run.id}",
        )
    policies = store.read(policy_queries.list_policies())
    policy_constraints.check_family_lineage(
        policies,
        name.family,
        policy.base,
        policy.base_hash,
        policy.parent,
        UNCHANGED,
        scores=policy.kind == "reward",
    )


def activate_policy(store: Store, message: wire.ActivatePolicy, author: Author) -> RequestStored:
    """Note that it is asked for; the supervisor tries it, in place of another that was asked for
    before and is not being tried. What is active already stays."""
    request = check_request_key(message.request)
    if before := store.read(policy_queries.find_activation_request(request)):
        return RequestStored(seq=before)
    wanted_name = _previous_policy(store, message.engine) if message.rollback else message.policy
    policy = store.read(policy_queries.find_policy(wanted_name)) if wanted_name else None
    if wanted_name and policy is None:
        raise NotFound(
            f"There is no policy {wanted_name[:80]!r}.", UNCHANGED, "houston policy list"
        )
    if policy is not None and policy.kind == "reward":
        raise denial(
            f"{policy.name} is a process reward model: it scores decisions and samples nothing.",
            "to score with it, set [review] process_reward in houston.toml",
        )
    name = "" if policy is None or policy.kind == "base" else policy.name
    pending = _pending_activation(store, message.engine)
    if pending is not None and pending.policy == name:
        return RequestStored(seq=pending.seq)
    body = bodies.ActivationRequested(
        by=author.person_label,
        request=request,
        engine=message.engine,
        policy=name,
        rollback=message.rollback,
        **author.event_fields,
    )
    store.supervisor_events.append(RunnableChanged())
    return RequestStored(seq=store.journal.append(EventKey(), "activation", body))


def _pending_activation(store: Store, engine: str) -> policy_queries.ActivationRow | None:
    """The newest activation of an engine, where nothing has come of it yet."""
    newest = store.read(policy_queries.list_activations(engine, newest=1))
    return newest[0] if newest and newest[0].state == "asked" else None


def _previous_policy(store: Store, engine: str) -> str:
    if (pending := _pending_activation(store, engine)) is not None:
        policy = pending.policy or "its own model"
        raise denial(
            f"Engine {engine} is just switching to {policy}: it is not known yet what it would "
            "go back to.",
            f"houston policy activate POLICY --engine {engine}, which is tried instead",
        )
    before = store.read(policy_queries.find_previous_policy(engine))
    if before is None:
        raise denial(
            f"Engine {engine} has no earlier policy to go back to: only its own model is left.",
            "houston policy list",
        )
    return str(before)


def store_activation_result(
    store: Store, asked: int, ok: bool, reason: str, unloaded: tuple[str, ...]
) -> None:
    """What came of an activation; nothing where that is known."""
    activation = store.read(policy_queries.find_activation(asked))
    if activation is not None and activation.state == "asked":
        body = bodies.ActivationEnded(asked=asked, ok=ok, reason=redact(reason), unloaded=unloaded)
        store.journal.append(EventKey(), "activated", body)


def choose_policies(store: Store, spec: RolloutSpec) -> RolloutSpec:
    """The spec with the policies that its rollout samples with: for each role with its own engine,
    the one that is active there."""
    roles = {
        role: msgspec.convert(
            choose_policy(store, spec_of_role(spec, role)), RoleEngine, from_attributes=True
        )
        for role in spec.role_engines
    }
    return msgspec.structs.replace(choose_policy(store, spec), role_engines=roles)


def choose_policy(store: Store, spec: RolloutSpec) -> RolloutSpec:
    """The spec with the policy that its rollout samples with: the engine's active one.

    A spec may name another: `base`, or one that was active on the engine before, where there is
    room for it.
    """
    name = spec.policy or store.read(policy_queries.find_active_policy(spec.engine))
    if spec.policy == BASE_MODEL:
        name = ""
    elif spec.policy and not store.read(policy_queries.was_activated(spec.engine, name)):
        raise denial(
            f"Policy {name} was never activated on engine {spec.engine}.",
            f"houston policy activate {name} --engine {spec.engine}",
            "No rollout was started.",
        )
    policy = store.read(policy_queries.find_policy(name)) if name else None
    if policy is None or policy.kind == "base":
        return msgspec.structs.replace(spec, policy="", policy_hash="")
    folder = str(policies_folder(store.home) / policy.folder)
    if policy.kind == "lora":
        if spec.policy:
            store.read(
                policy_constraints.require_adapter_room(spec.engine, name, _adapter_limit(spec)),
            )
        adapter = {"adapters": {policy.name: folder}, "adapter_hashes": {policy.name: policy.hash}}
        settings = {**spec.engine_settings, **adapter}
        return msgspec.structs.replace(
            spec, policy=policy.name, policy_hash=policy.hash, engine_settings=settings
        )
    return _use_own_engine(store, spec, policy, folder)


class _AdapterLimits(msgspec.Struct, frozen=True):
    """Of an engine's settings, what decides how many policies fit."""

    kind: str = ""
    url: str = ""
    urls: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    max_adapters: int = 0
    lora: bool = True


def _adapter_limit(spec: RolloutSpec) -> int:
    try:
        limits = msgspec.convert(spec.engine_settings, _AdapterLimits)
    except msgspec.ValidationError as problem:
        raise denial(f"Engine {spec.engine} has invalid settings: {problem}.") from problem
    if not limits.lora:
        raise denial(f"Engine {spec.engine} takes no adapters (`lora = false`).")
    return policy_constraints.adapter_limit(EngineSettings(**msgspec.structs.asdict(limits)))


def _use_own_engine(store: Store, spec: RolloutSpec, policy: PolicyRow, folder: str) -> RolloutSpec:
    """Full weights are served by an engine that is named after them."""
    policies = store.read(policy_queries.list_policies())
    instead = policy_constraints.base_folders(
        store.home, policy_constraints.base_hashes(policy, policies), policies
    )
    settings = build_own_engine_settings(spec.engine_settings, policy, folder, instead)
    return msgspec.structs.replace(
        spec,
        policy=policy.name,
        policy_hash=policy.hash,
        engine=policy.name,
        engine_settings=settings,
    )


def build_own_engine_settings(
    settings: dict[str, Any], policy: PolicyRow, folder: str, instead: Collection[str]
) -> dict[str, Any]:
    """Settings of an engine of full weights, made from those of an engine of one of their bases.

    instead: real paths of such models; `folder` replaces them in the command.
    """
    command = [
        folder if os.path.realpath(part) in instead else part
        for part in settings.get("command", ())
    ]
    return {**settings, "model": folder, "port": 0, "command": command, "own_policy": policy.name}
