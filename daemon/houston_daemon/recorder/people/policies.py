"""What operators say of policies: that one is there, and that new rollouts are to sample with it.

Whether an engine can sample with a policy only the engine can say: an activation is taken down as
asked for, the supervisor tries it and says through `note` what came of it. What new rollouts sample
with is decided here, as they are queued.
"""

import os
from collections.abc import Collection
from typing import Any

import msgspec

from houston_daemon.recorder.disk import blobs
from houston_daemon.recorder.people import said_before
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.protocol import Wanted
from houston_daemon.recorder.refusal import UNCHANGED, denial
from houston_daemon.recorder.steps import rebuild
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_daemon.training.policies import families, lineage, live
from houston_shared import policy_names, wire
from houston_shared.config_engine import Engine
from houston_shared.policy_names import BASE, PolicyName
from houston_shared.records import RolloutSpec
from houston_shared.secret_values import redact, redact_all
from houston_shared.store import bodies_training as bodies
from houston_shared.store.queries import policies, training_runs
from houston_shared.store.queries.policies import Policy
from houston_shared.wire import Done


def register(store: Store, message: wire.RegisterPolicy, author: Author) -> Done:
    """Take note of a policy whose files lie ready; of its family's base model, too, if it is new.

    A family has one base model. The same request again changes nothing.
    """
    said, request = message.policy, said_before.key(message.request)
    name = policy_names.parse(said.name)
    policy_names.check_family(name.family)
    if known := rebuild.run(store, policies.one(said.name)):
        if known.hash == said.hash and known.run == said.run:
            return Done(seq=known.seq)
        raise denial(f"There is a policy {said.name} already.", "houston policy list")
    _check(store, said, name)
    fields: dict[str, Any] = {"by": author.by, "request": request, **author.fields}
    if rebuild.run(store, policies.one(str(name._replace(number=1)))) is None:
        base = bodies.PolicyRegistered(
            **fields,
            name=str(name._replace(number=1)),
            kind="base",
            base=said.base,
            base_hash=said.base_hash,
            hash=said.base_hash,
            engines=said.engines,
            version=said.version,
        )
        store.journal.append(Key(), "policy", base)
    body = msgspec.structs.replace(
        said, **fields, recipe=redact_all(said.recipe), note=redact(said.note)
    )
    return Done(seq=store.journal.append(Key(), "policy", blobs.stored(store.home, body)))


def _check(store: Store, said: bodies.PolicyRegistered, name: PolicyName) -> None:
    """Raise HoustonError for a lineage that does not hold, or files that are not there."""
    if said.kind == "base" or name.number == 1:
        raise denial("A base model becomes number 1 of a family by what is trained from it.")
    if (
        said.folder != said.name
        or not (policy_names.policies_folder(store.home) / said.folder / "lineage.json").is_file()
    ):
        raise denial(f"The home has no folder policies/{said.name} with a lineage.json.")
    run = rebuild.run(store, training_runs.one(said.run)) if said.run else None
    if run is not None and run.state == "cancelled":
        raise denial(
            f"Training {run.id} was cancelled: nothing becomes a policy of it.",
            f"houston train sft --resume {run.id}",
        )
    known = rebuild.run(store, policies.every())
    families.check(known, name.family, said.base, said.base_hash, said.parent, UNCHANGED)


def activate(store: Store, message: wire.ActivatePolicy, author: Author) -> Done:
    """Note that it is asked for; the supervisor tries it. What is active already stays."""
    request = said_before.key(message.request)
    if before := rebuild.run(store, policies.asked_before(request)):
        return Done(seq=before)
    for one in rebuild.run(store, policies.activations(message.engine)):
        if one.state == "asked":
            raise denial(
                f"Engine {one.engine} is just being given {one.policy or 'its own model'}.",
                "houston policy list",
            )
    wanted = _taken_back(store, message.engine) if message.rollback else message.policy
    policy = rebuild.run(store, policies.one(wanted)) if wanted else None
    if wanted and policy is None:
        raise denial(f"There is no policy {wanted[:80]!r}.", "houston policy list")
    body = bodies.ActivationAsked(
        by=author.by,
        request=request,
        engine=message.engine,
        policy="" if policy is None or policy.kind == "base" else policy.name,
        rollback=message.rollback,
        **author.fields,
    )
    store.tells.append(Wanted())
    return Done(seq=store.journal.append(Key(), "activation", body))


def _taken_back(store: Store, engine: str) -> str:
    before = rebuild.run(store, policies.before(engine))
    if before is None:
        raise denial(
            f"Engine {engine} has nothing to go back to: left is nothing but its own model.",
            "houston policy list",
        )
    return str(before)


def note(store: Store, asked: int, ok: bool, reason: str, unloaded: tuple[str, ...]) -> None:
    """What came of an activation; nothing where that is known."""
    known = rebuild.run(store, policies.activation(asked))
    if known is not None and known.state == "asked":
        body = bodies.ActivationEnded(asked=asked, ok=ok, reason=redact(reason), unloaded=unloaded)
        store.journal.append(Key(), "activated", body)


def chosen(store: Store, spec: RolloutSpec) -> RolloutSpec:
    """The spec with the policy that its rollout samples with: the engine's active one.

    A spec may name another: `base`, or one that was active on the engine before, where there is
    room for it.
    """
    name = spec.policy or rebuild.run(store, policies.active(spec.engine))
    if spec.policy == BASE:
        name = ""
    elif spec.policy:
        tried = rebuild.run(store, policies.activations(spec.engine))
        if not any(one.policy == name and one.state == "active" for one in tried):
            raise denial(
                f"Engine {spec.engine} never was given {name}.",
                f"houston policy activate {name} --engine {spec.engine}",
                "No rollout was started.",
            )
    policy = rebuild.run(store, policies.one(name)) if name else None
    if policy is None or policy.kind == "base":
        return msgspec.structs.replace(spec, policy="", policy_hash="")
    folder = str(policy_names.policies_folder(store.home) / policy.folder)
    if policy.kind == "lora":
        if spec.policy:
            rebuild.run(store, live.room(spec.engine, name, _limit(spec)))
        adapter = {"adapters": {policy.name: folder}, "adapter_hashes": {policy.name: policy.hash}}
        settings = {**spec.engine_settings, **adapter}
        return msgspec.structs.replace(
            spec, policy=policy.name, policy_hash=policy.hash, engine_settings=settings
        )
    return _of_its_own(store, spec, policy, folder)


class _Limiting(msgspec.Struct, frozen=True):
    """Of an engine's settings, what decides how many policies fit."""

    kind: str = ""
    url: str = ""
    command: tuple[str, ...] = ()
    max_adapters: int = 0
    lora: bool = True


def _limit(spec: RolloutSpec) -> int:
    try:
        said = msgspec.convert(spec.engine_settings, _Limiting)
    except msgspec.ValidationError as problem:
        raise denial(f"Engine {spec.engine} has settings that are none: {problem}.") from problem
    if not said.lora:
        raise denial(f"Engine {spec.engine} takes no adapters (`lora = false`).")
    return live.limit(Engine(**msgspec.structs.asdict(said)))


def _of_its_own(store: Store, spec: RolloutSpec, policy: Policy, folder: str) -> RolloutSpec:
    """Full weights are served by an engine that is named after them."""
    known = rebuild.run(store, policies.every())
    instead = lineage.folders(store.home, lineage.bases(policy, known), known)
    settings = full_settings(spec.engine_settings, policy, folder, instead)
    return msgspec.structs.replace(
        spec,
        policy=policy.name,
        policy_hash=policy.hash,
        engine=policy.name,
        engine_settings=settings,
    )


def full_settings(
    settings: dict[str, Any], policy: Policy, folder: str, instead: Collection[str]
) -> dict[str, Any]:
    """Settings of the engine of full weights, from those of an engine of a model they come from.

    instead: real paths of such models; `folder` takes their place in the command.
    """
    command = [
        folder if os.path.realpath(part) in instead else part
        for part in settings.get("command", ())
    ]
    return {**settings, "model": folder, "port": 0, "command": command, "own_policy": policy.name}
