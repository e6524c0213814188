"""Policies and activations: what there is, and what new rollouts of an engine sample with."""

from typing import NamedTuple

import msgspec

from houston_shared.store import journal
from houston_shared.store.bodies_training import PolicyRegistered
from houston_shared.store.plan import Ask, Plan, RowRecord, columns, from_rows

UNFINISHED = "('queued', 'running', 'paused')"


class Policy(RowRecord, frozen=True):
    """A row of `policies`."""

    name: str
    family: str
    number: int
    kind: str
    """`base`, `lora` or `full`."""
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


class Activation(RowRecord, frozen=True):
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


class Use(NamedTuple):
    """Unfinished rollouts of one engine that sample with one policy."""

    engine: str
    policy: str
    """Empty for the engine's own model."""
    rollouts: tuple[str, ...]


def every() -> Plan[list[Policy]]:
    """All policies, by family and number."""
    found = yield Ask(f"SELECT {columns(Policy)} FROM policies ORDER BY family, number")
    return from_rows(Policy, found)


def one(name: str) -> Plan[Policy | None]:
    """The policy of that name."""
    found = yield Ask(f"SELECT {columns(Policy)} FROM policies WHERE name = ?", (name,))
    return next(iter(from_rows(Policy, found)), None)


def of_run(run: str) -> Plan[Policy | None]:
    """What came of a training run."""
    found = yield Ask(f"SELECT {columns(Policy)} FROM policies WHERE run = ?", (run,))
    return next(iter(from_rows(Policy, found)), None)


def registered(policy: Policy) -> Plan[PolicyRegistered | None]:
    """What was said of it: recipe, metrics, files; None where that was erased or set aside."""
    events = yield from journal.by_seq([policy.seq])
    event = events.get(policy.seq)
    if event is None:
        return None
    gone = PolicyRegistered(by="", name="", kind="lora", base="", base_hash="", hash="")
    found: PolicyRegistered = yield from journal.record(event, PolicyRegistered, gone)
    return found if found.name else None


def activations(engine: str = "", newest: int = 0) -> Plan[list[Activation]]:
    """Activations of an engine (or all), oldest first; only the `newest` where that is not 0."""
    found = yield Ask(
        f"SELECT {columns(Activation)} FROM activations WHERE ? IN ('', engine)"
        " ORDER BY seq DESC LIMIT ?",
        (engine, newest or -1),
    )
    return from_rows(Activation, found)[::-1]


def activation(seq: int) -> Plan[Activation | None]:
    """The activation that the event `seq` asked for."""
    found = yield Ask(f"SELECT {columns(Activation)} FROM activations WHERE seq = ?", (seq,))
    return next(iter(from_rows(Activation, found)), None)


def active(engine: str) -> Plan[str]:
    """What new rollouts of an engine sample with; empty for its own model."""
    found = yield Ask(
        "SELECT policy FROM activations WHERE engine = ? AND state = 'active'"
        " ORDER BY seq DESC LIMIT 1",
        (engine,),
    )
    return str(found[0][0]) if found else ""


def before(engine: str) -> Plan[str | None]:
    """What an engine's new rollouts sampled with before the policy that is active now.

    Empty for its own model; None where there is nothing to take back. A rollback takes back what
    it took back: the next one goes one further.
    """
    stack = [""]
    for one in (yield from activations(engine)):
        if one.state != "active":
            continue
        if one.rollback and len(stack) > 1:
            stack.pop()
        if stack[-1] != one.policy:
            stack.append(one.policy)
    return stack[-2] if len(stack) > 1 else None


def actives() -> Plan[dict[str, str]]:
    """Engine → what its new rollouts sample with, for engines that have one."""
    found = yield Ask(
        "SELECT engine, policy FROM activations a WHERE state = 'active' AND policy != ''"
        " AND seq = (SELECT max(seq) FROM activations b WHERE b.engine = a.engine"
        " AND b.state = 'active') ORDER BY engine"
    )
    return dict(found)


def shown_actives() -> Plan[dict[str, str]]:
    """The same for people: an engine that went back to its own model has that by its name.

    That is number 1 of the family that was active on it last: activating proved it the same model.
    Not so where that number is full weights of the home: those have an engine of their own.
    """
    found = yield from actives()
    own = yield Ask(
        "SELECT a.engine, b.name FROM activations a JOIN policies p ON p.name = a.policy"
        " JOIN policies b ON b.family = p.family AND b.kind = 'base'"
        " AND b.hash NOT IN (SELECT hash FROM policies WHERE kind = 'full')"
        " WHERE a.seq = (SELECT max(seq) FROM activations c WHERE c.engine = a.engine"
        " AND c.state = 'active' AND c.policy != '') ORDER BY a.engine"
    )
    return {**dict(own), **found}


def uses() -> Plan[list[Use]]:
    """Which policies unfinished rollouts sample with."""
    found = yield Ask(
        f"SELECT engine, policy, id FROM rollouts WHERE state IN {UNFINISHED}"
        " ORDER BY engine, policy, id"
    )
    by: dict[tuple[str, str], list[str]] = {}
    for engine, policy, rollout in found:
        by.setdefault((engine, policy), []).append(rollout)
    return [Use(*key, tuple(rollouts)) for key, rollouts in by.items()]


def sampled() -> Plan[dict[str, int]]:
    """Policy → tokens that were sampled with it; empty for engines' own models."""
    found = yield Ask("SELECT policy, coalesce(sum(sampled_ids), 0) FROM samples GROUP BY policy")
    return {policy: int(tokens) for policy, tokens in found}


def full_engine(name: str) -> Plan[tuple[Policy, str] | None]:
    """Full weights of that name, and the engine whose settings they are served with.

    None for what is no policy with full weights that somebody activated.
    """
    policy = yield from one(name)
    if policy is None or policy.kind != "full":
        return None
    found = yield Ask(
        "SELECT engine FROM activations WHERE policy = ? AND state != 'failed'"
        " ORDER BY seq DESC LIMIT 1",
        (name,),
    )
    return (policy, str(found[0][0])) if found else None


class _Fields(msgspec.Struct):
    request: str = ""


def asked_before(request: str) -> Plan[int]:
    """The event that asked for an activation under this key; 0 for none."""
    found = yield Ask(
        "SELECT a.seq, e.body FROM activations a JOIN events e ON e.seq = a.seq"
        " WHERE e.body IS NOT NULL ORDER BY a.seq DESC LIMIT 100"
    )
    for seq, body in found:
        if msgspec.msgpack.decode(body, type=_Fields).request == request:
            return int(seq)
    return 0
