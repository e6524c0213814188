"""Rules for registered policies: which family a policy may join, what it may come from, and how
many may be live on an engine.

A version is live while new rollouts get it, or while an unfinished rollout samples with it, which
may be 30 hours after its activation. The rules use names, lineage and limits; no weights are read
or loaded.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from houston_daemon.engines.vllm_serve import MAX_LOADED_ADAPTERS
from houston_shared.config import LoadedConfiguration
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import HoustonError, NotFound
from houston_shared.home import Home
from houston_shared.policy_and_run_files import PolicyName, policies_folder
from houston_shared.store import policy_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import join_first

POLICY_ENGINES = ("embedded", "vllm", "token")
"""Kinds of engines that can be given policies; the others sample with their own model alone."""


def activation_command(loaded: LoadedConfiguration, policy: str, engine: str = "") -> str:
    """The command that has new rollouts sample with a policy, on an engine that can be given it.

    policy: of the home; one that is not known there is taken for an adapter. engine: the one that
    it was trained on; empty: the default one, or another that can.
    """
    default = loaded.config.default_engine
    engines = {"embedded": EngineSettings(kind="embedded"), **loaded.config.engines}
    candidates = [engine or default, *loaded.config.engines]
    kind = _kind_of_policy(loaded.home, policy)
    able = next(
        (name for name in candidates if name in engines and can_serve_policy(engines[name], kind)),
        "",
    )
    command = f"houston policy activate {policy}"
    if not able:
        return f"{command} --engine ENGINE, with one of kind embedded or vllm in houston.toml"
    return command if able == default else f"{command} --engine {able}"


def can_serve_policy(engine: EngineSettings, kind: str) -> bool:
    """Whether an engine can sample with a policy of this kind, as PolicyRow has it: `full` weights
    need a child of the daemon, which starts it with them."""
    if kind == "full":
        return engine.is_daemon_child
    return engine.kind in POLICY_ENGINES and (engine.lora or kind != "lora")


def _kind_of_policy(home: Home, policy: str) -> str:
    if not home.database.exists():
        return "lora"
    with Reader(home) as reader:
        row = reader.run(policy_queries.find_policy(policy))
    return row.kind if row else "lora"


def check_family_lineage(
    rows: Collection[PolicyRow],
    family: str,
    base: str,
    base_hash: str,
    parent: str,
    effect: str,
    *,
    scores: bool = False,
) -> None:
    """Raise HoustonError where a policy of this lineage cannot be registered.

    A family has one base model, or full weights that were trained from it. A parent may be of any
    family, if the new policy begins from it or from its base. rows: all policies. parent: empty for
    the family's base model. effect: what did not happen. scores: whether it is a process reward
    model. Those have other families than policies that sample, because a family's name means its
    newest policy.
    """
    _refuse_mixed_family(rows, family, scores, effect)
    bases = {row.hash for row in rows if row.family == family and row.kind in ("base", "full")}
    if bases and base_hash not in bases:
        raise HoustonError(
            f"Policies named {family} are trained from another base model than {base}.",
            effect,
            "Choose another name: --name.",
        )
    if parent and parent != str(PolicyName(family, 1)):
        _require_parent(rows, parent, base, base_hash, effect)


def _refuse_mixed_family(
    rows: Collection[PolicyRow], family: str, scores: bool, effect: str
) -> None:
    """Raise HoustonError where the family's policies sample and this one scores, or vice versa."""
    other = next(
        (
            row.name
            for row in rows
            if row.family == family and row.kind != "base" and (row.kind == "reward") != scores
        ),
        "",
    )
    if other:
        kinds = ("scores decisions", "samples")
        raise HoustonError(
            f"{other} {kinds[scores]}, and the new policy {kinds[not scores]}: they cannot share a"
            " name.",
            effect,
            "Choose another name: --name.",
        )


def _require_parent(
    rows: Collection[PolicyRow], parent: str, base: str, base_hash: str, effect: str
) -> None:
    """Raise HoustonError where a policy cannot come from `parent`."""
    origin = next((row for row in rows if row.name == parent), None)
    if origin is None:
        raise NotFound(f"There is no policy {parent!r} to start from.", effect)
    if base_hash not in (origin.base_hash, origin.hash):
        raise HoustonError(
            f"{parent} is of another base model than {base}: it cannot be the parent.", effect
        )


def base_hashes(policy: PolicyRow, rows: Collection[PolicyRow]) -> frozenset[str]:
    """Content hashes of all models that it comes from: its base; where that is full weights, theirs
    too, and so on. rows: all policies."""
    hashes: set[str] = set()
    more = {policy.base_hash}
    while more - hashes:
        hashes |= more
        more = {row.base_hash for row in rows if row.kind == "full" and row.hash in hashes}
    return frozenset(hashes)


def base_folders(home: Home, hashes: Collection[str], rows: Iterable[PolicyRow]) -> frozenset[str]:
    """Where models of these hashes lie, as real paths: wherever they were trained from, and the
    home's own full weights."""
    folders = set()
    for row in rows:
        if row.base_hash in hashes:
            folders.add(os.path.realpath(row.base))
        if row.kind == "full" and row.hash in hashes:
            folders.add(os.path.realpath(policies_folder(home) / row.folder))
    return frozenset(folders)


def full_weights_under(policy: PolicyRow, rows: Iterable[PolicyRow]) -> PolicyRow | None:
    """The full weights that an adapter fits; None for an adapter of a model nobody here trained."""
    if policy.kind != "lora":
        return None
    fits = (row for row in rows if row.kind == "full" and row.hash == policy.base_hash)
    return next(fits, None)


EMBEDDED_ADAPTERS = 8
"""Adapters that the embedded server holds; SmolLM2's of rank 16 are 10 MB each."""
_MAX_NAMED_ROLLOUTS = 3


def adapter_limit(engine: EngineSettings) -> int:
    """How many adapters an engine holds at once; 0 where it is unknown.

    Read from its settings (`max_adapters`) or its command: vLLM keeps `--max-cpu-loras` in memory,
    at least `--max-loras`, which is the number that one batch may mix.
    """
    if engine.max_adapters:
        return engine.max_adapters
    if engine.kind == "embedded":
        return EMBEDDED_ADAPTERS
    if engine.kind != "vllm" or engine.addressed:
        return 0
    if not engine.command:
        return MAX_LOADED_ADAPTERS
    limits = [_flag_number(engine.command, name) for name in ("--max-cpu-loras", "--max-loras")]
    return max(*limits, 1)


def _flag_number(command: Sequence[str], name: str) -> int:
    """The number behind a flag of a command, 0 without it; the last one counts."""
    number = 0
    for index, word in enumerate(command):
        flag, _, value = word.partition("=")
        if flag == name:
            value = value or (command[index + 1] if index + 1 < len(command) else "")
            number = int(value) if value.isdigit() else number
    return number


def require_adapter_room(engine: str, policy: str, max_adapters: int) -> ReadPlan[None]:
    """Raise HoustonError where new rollouts with this policy would make more policies live than
    fit.

    max_adapters: the engine's limit, 0 for none. The active policy stays live for rollouts that
    name none.
    """
    used = {
        use.policy: use.rollouts
        for use in (yield from policy_queries.list_policy_uses())
        if use.engine == engine
    }
    used.setdefault((yield from policy_queries.find_active_policy(engine)), ("new rollouts",))
    adapters_to_unload(max_adapters, policy, (), used)


def adapters_to_unload(
    max_adapters: int, policy: str, loaded: Sequence[str], used: Mapping[str, Collection[str]]
) -> tuple[str, ...]:
    """What must leave the engine so that `policy` fits, the oldest first.

    max_adapters: the engine's limit, 0 for none. loaded: adapters that it has, the oldest
    activation first. used: policy → rollouts that have not ended. Raises HoustonError where those
    alone fill it.
    """
    needed = {name for name, rollouts in used.items() if name and rollouts} | {policy}
    if max_adapters and len(needed) > max_adapters:
        others = sorted(needed - {policy})
        users = "; ".join(
            f"{name} by {join_first(sorted(used[name]), _MAX_NAMED_ROLLOUTS)}" for name in others
        )
        raise HoustonError(
            f"At most {max_adapters} policies may be live at once,"
            f" and {len(others)} are used: {users}.",
            "New rollouts sample with the same policy as before.",
            "Wait for one of them, cancel it, or raise the limit: --max-cpu-loras of vLLM, "
            "`max_adapters` of the engine.",
        )
    free = [name for name in loaded if name not in needed]
    over = len(set(loaded) | needed) - max_adapters if max_adapters else 0
    return tuple(free[: max(0, over)])
