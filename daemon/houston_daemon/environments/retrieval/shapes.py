"""Reading a list out of a provider's JSON, which may be anything."""

from typing import Any

from houston_daemon.environments.retrieval.protocol import SearchFailed


def entries(found: dict[str, Any], *path: str, marks: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The objects in the list at `path`; other things in it are passed over.

    marks: members that only an answer of this provider has; where one is there, a list that is
    missing means no results. Without any, raises SearchFailed: something else answered.
    """
    here: Any = found
    for name in path:
        here = here.get(name) if isinstance(here, dict) else None
    if here is None and any(mark in found for mark in marks):
        return []
    if not isinstance(here, list):
        raise SearchFailed(
            "malformed", f"The search provider's answer has no list `{'.'.join(path)}`."
        )
    return [one for one in here if isinstance(one, dict)]
