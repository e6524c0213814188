"""What a policy was trained from, back to a model that nobody here trained. By what is registered;
reads no file."""

import os
from collections.abc import Collection, Iterable

from houston_shared.home import Home
from houston_shared.policy_names import policies_folder
from houston_shared.store.queries.policies import Policy


def bases(policy: Policy, known: Collection[Policy]) -> frozenset[str]:
    """Content hashes of all models that it comes from: its base; where that is full weights, theirs
    too, and so on. known: all policies."""
    found: set[str] = set()
    wanted = {policy.base_hash}
    while wanted - found:
        found |= wanted
        wanted = {one.base_hash for one in known if one.kind == "full" and one.hash in found}
    return frozenset(found)


def folders(home: Home, hashes: Collection[str], known: Iterable[Policy]) -> frozenset[str]:
    """Where models of these hashes lie, as real paths: wherever they were trained from, and the
    home's own full weights."""
    found = set()
    for one in known:
        if one.base_hash in hashes:
            found.add(os.path.realpath(one.base))
        if one.kind == "full" and one.hash in hashes:
            found.add(os.path.realpath(policies_folder(home) / one.folder))
    return frozenset(found)


def weights_under(policy: Policy, known: Iterable[Policy]) -> Policy | None:
    """The full weights that an adapter fits; None for an adapter of a model nobody here trained."""
    if policy.kind != "lora":
        return None
    fits = (one for one in known if one.kind == "full" and one.hash == policy.base_hash)
    return next(fits, None)
