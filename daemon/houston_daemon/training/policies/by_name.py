"""Policies as people name them: which one is meant, where its files lie, where it came from."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.training.policies import checking
from houston_daemon.training.policies.hashing import model_hash
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.policy_names import policies_folder
from houston_shared.store.queries import policies
from houston_shared.store.queries.policies import Policy
from houston_shared.store.reader import Reader


class Named(NamedTuple):
    """A policy with its files."""

    policy: Policy
    folder: Path
    """Its adapter or full weights; of a base model that itself."""
    base: Path
    lineage: dict[str, Any]


def named(home: Home, name: str) -> Named:
    """The policy of that name.

    Raises HoustonError for none, and where its files or the base of its adapter are not what they
    were when it was registered.
    """
    with Reader(home) as reader:
        policy = reader.run(policies.one(name))
    if policy is None:
        raise HoustonError(f"There is no policy {name!r}.", next="houston policy list")
    said = checking.check(home, policy)
    lineage = msgspec.to_builtins(said) if said else {"name": policy.name}
    base = Path(policy.base)
    if policy.kind != "full" and model_hash(base, home) != policy.base_hash:
        raise HoustonError(f"{base} is not the model any more that {name} was trained from.")
    folder = policies_folder(home) / policy.folder if policy.folder else base
    return Named(policy, folder, base, lineage)


def trained(home: Home, name: str) -> Named:
    """The same; raises HoustonError for a base model, too: it has no files of its own."""
    found = named(home, name)
    if found.policy.kind == "base":
        raise HoustonError(f"{name} is the base model: it lies in {found.base} as it is.")
    return found
