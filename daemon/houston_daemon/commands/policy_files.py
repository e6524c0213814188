"""What `policy merge` and `policy export` share: which policy is meant, and its files."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_shared.config import Loaded
from houston_shared.errors import HoustonError
from houston_shared.policy_names import policies_folder
from houston_shared.store.queries import policies
from houston_shared.store.queries.policies import Policy
from houston_shared.store.reader import Reader


class Meant(NamedTuple):
    """A policy with files of its own."""

    policy: Policy
    folder: Path
    base: Path
    lineage: dict[str, Any]


def meant(loaded: Loaded, name: str) -> Meant:
    """The policy of that name. Raises HoustonError for none, or a base model."""
    with Reader(loaded.home) as reader:
        policy = reader.run(policies.one(name))
        said = reader.run(policies.registered(policy)) if policy else None
    if policy is None:
        raise HoustonError(f"There is no policy {name!r}.", next="houston policy list")
    if policy.kind == "base":
        raise HoustonError(f"{name} is the base model: it lies in {policy.base} as it is.")
    lineage = msgspec.to_builtins(said) if said else {"name": policy.name}
    folder = policies_folder(loaded.home) / policy.folder
    return Meant(policy, folder, Path(policy.base), lineage)
