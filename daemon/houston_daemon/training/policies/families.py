"""Which policies may stand in one family, and come from which: what registering holds, and what
training asks before its first step. By what is registered; reads no file."""

from collections.abc import Collection

from houston_shared.errors import HoustonError
from houston_shared.policy_names import PolicyName
from houston_shared.store.queries.policies import Policy


def check(
    known: Collection[Policy], family: str, base: str, base_hash: str, parent: str, effect: str
) -> None:
    """Raise HoustonError where a policy of this lineage could not be registered.

    A family has one base model, or full weights that were trained from it. Any family's policy may
    be the parent of what begins from it, or from its base. known: all policies. parent: empty for
    the family's base model. effect: what did not happen.
    """
    bases = {one.hash for one in known if one.family == family and one.kind in ("base", "full")}
    if bases and base_hash not in bases:
        raise HoustonError(
            f"Policies of the name {family} are trained from another base model than {base}.",
            effect,
            "Name the family otherwise: --name.",
        )
    if not parent or parent == str(PolicyName(family, 1)):
        return
    found = next((one for one in known if one.name == parent), None)
    if found is None:
        raise HoustonError(f"There is no policy {parent!r} that it could come from.", effect)
    if base_hash not in (found.base_hash, found.hash):
        raise HoustonError(
            f"{parent} is of another base model than {base}: it cannot come from it.", effect
        )
