"""Where a context is cut when it is summarised: APOLLO, Algorithm 1 A, lines 4 to 9.

t is the number of entries of the current context (the pair that an earlier fork left counts as
one), k = ⌊t/2⌋ of them are compressed, and t becomes t − k + 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from houston_daemon.rollout.context import Context, Entry
from houston_daemon.rollout.ledger import Anchor
from houston_daemon.rollout.limits import Limits
from houston_daemon.rollout.rendering import Renderer
from houston_shared.records import Delivered


@dataclass(frozen=True, slots=True)
class Cut:
    """How a context will be forked."""

    k: int
    """Entries that the summary replaces."""
    first_kept_step: int


def least_k(t: int, forked: bool) -> int:
    """⌊t/2⌋, but never so few that nothing new would be compressed."""
    return max(t // 2, 2 if forked else 1)


def choose_k(
    sizes: Sequence[int],
    beside: Sequence[int],
    *,
    forked: bool,
    fixed: int,
    limit: int,
) -> int:
    """How many entries to compress; 0 when there is nothing to compress.

    sizes: tokens of each entry. beside: tokens of what stands beside the summary when it replaces
    as many entries: oₖ, and guidance kept verbatim. fixed: tokens of head and summary.
    limit: what the new context may have.
    The least k whose context fits is taken, from ⌊t/2⌋ up; all entries when none fits.
    """
    t = len(sizes)
    if t < least_k(t, forked):
        return 0
    for k in range(least_k(t, forked), t + 1):
        if fixed + beside[k - 1] + sum(sizes[k:]) <= limit:
            return k
    return t


def plan(
    context: Context, renderer: Renderer, limits: Limits, most: int | None = None
) -> Cut | None:
    """Where to cut `context`; None when nothing can be compressed.

    most: tokens that the new context may have; None for what the limits say.
    """
    entries, count = context.entries, renderer.measure.count
    beside = [
        count(entries[k - 1].observed())
        + min(limits.guidance, sum(count(one.text) + 12 for one in context.heard(k)))
        for k in range(1, len(entries) + 1)
    ]
    # A summary seldom takes all it may; what it takes beyond this is within the answer's room.
    fixed = context.head_size + limits.summary // 2
    limit = limits.useful(context.head_size) if most is None else most
    sizes = [entry.size for entry in entries]
    k = choose_k(sizes, beside, forked=context.forked, fixed=fixed, limit=limit)
    return Cut(k, entries[k - 1].step + 1) if k else None


def _earlier(context: Context, k: int) -> list[Delivered]:
    """Guidance of the first k entries but for what stands in oₖ itself."""
    own = {one.id for one in context.entries[k - 1].guidance}
    return [one for one in context.heard(k) if one.id not in own]


def forked(context: Context, k: int, pair: Entry, anchor_seq: int | None) -> Context:
    """The new context: head, (S₁:ₖ, oₖ), τₖ₊₁:ₜ.

    anchor_seq: the summary's sample; with it the first prompt keeps the head's ids.
    """
    shared = (context.head_ids or ()) if anchor_seq is not None else ()
    made = Context(context.head, context.head_ids, context.head_size, Anchor(anchor_seq, shared))
    made.add(pair)
    for entry in context.entries[k:]:
        made.add(entry)
    return made


def compressed_guidance(context: Context, k: int) -> tuple[tuple[str, ...], list[Delivered]]:
    """Ids of all guidance of the compressed part, and what of it must be said again beside oₖ.

    That of earlier forks comes first.
    """
    return tuple(one.id for one in context.heard(k)), _earlier(context, k)
