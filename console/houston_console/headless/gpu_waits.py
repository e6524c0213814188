"""Rollouts that wait for a GPU: the ledger in the home says so, their rows do not."""

from msgspec.structs import replace

from houston_shared import gpu_file
from houston_shared.home import Home
from houston_shared.store.queries.rollouts import Rollout


def as_it_is(found: list[Rollout], home: Home) -> list[Rollout]:
    """Rollouts with what they wait for, where that is a GPU: a queued one has it as its reason."""
    waiting = gpu_file.read(home).waiting if any(_waits(one) for one in found) else {}
    return [_said(one, waiting.get(f"rollout:{one.id}", "")) for one in found]


def _waits(one: Rollout) -> bool:
    return one.state in ("queued", "running")


def _said(one: Rollout, why: str) -> Rollout:
    if not why or not _waits(one):
        return one
    return replace(one, reason=why) if one.state == "queued" else replace(one, activity=why)
