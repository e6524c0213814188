"""How one prompt follows from what was sampled before: the arithmetic of the token ledger.

A prompt is stored as (parent sample, kept ids of parent prompt + parent sampled ids, new ids), so
that a hundred thousand tokens of context cost only what each step added.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from houston_shared.records import Drift


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the next prompt is measured against: the newest sample of the context."""

    seq: int | None = None
    """Journal sequence of that sample; None before the first, and after a mechanical fork."""
    ids: tuple[int, ...] = ()
    """Its prompt and sampled ids; after a fork only the head, which both contexts share."""
    lost: bool = False
    """Whether the engine returned no ids for it: what stands in the context was rendered."""


@dataclass(frozen=True, slots=True)
class Link:
    """A prompt told by its parent."""

    parent_seq: int | None
    kept: int
    new: tuple[int, ...] | None
    """None for engines without token ids."""
    drift: Drift


def link(
    anchor: Anchor, prompt: Sequence[int] | None, *, fresh: bool, stripped: bool = False
) -> Link:
    """How `prompt` follows from `anchor`.

    fresh: it is the first prompt of a context (class `forked`). stripped: the newest answer stands
    without its thought. Otherwise a prompt that begins with all of the anchor is `clean`, and one
    that does not, or whose anchor has lost its ids, is `realigned`.
    """
    if prompt is None:
        return Link(anchor.seq, 0, None, "forked" if fresh else "stripped" if stripped else "clean")
    kept = 0 if anchor.seq is None else common(anchor.ids, prompt)
    if fresh:
        drift: Drift = "forked"
    elif kept == len(anchor.ids) and not anchor.lost:
        drift = "clean"
    else:
        drift = "stripped" if stripped else "realigned"
    return Link(anchor.seq, kept, tuple(prompt[kept:]), drift)


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix; compares slices, so long prompts cost little."""
    low, high = 0, min(len(first), len(second))
    if tuple(first[:high]) == tuple(second[:high]):
        return high
    while high - low > 1:  # first[:low] agree, first[:high] do not
        middle = (low + high) // 2
        if tuple(first[low:middle]) == tuple(second[low:middle]):
            low = middle
        else:
            high = middle
    return low


def follow(parent: Sequence[int], kept: int, new: Sequence[int]) -> list[int]:
    """The prompt that (parent prompt + sampled ids, kept, new) tells; the inverse of `link`."""
    return [*parent[:kept], *new]
