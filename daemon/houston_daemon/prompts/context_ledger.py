"""A rollout's context, and how each prompt follows from the sample before it: the token ledger.

A prompt is stored as (parent sample, kept ids, new ids), so that a long context costs only what
each step added; the relation to its parent is its drift class (clean, stripped, realigned, forked).
Messages and token ids grow only in `Context.add`, so prompt(t) is always a prefix of prompt(t+1).
It knows neither engines nor dialects: entries are already rendered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from houston_shared import context_messages
from houston_shared.records import DeliveredGuidance, Drift, Message, ToolResult


@dataclass(frozen=True, slots=True)
class PromptAnchor:
    """What the next prompt is compared with: the newest sample of the context."""

    seq: int | None = None
    """Journal sequence of that sample; None before the first, and after a mechanical fork."""
    ids: tuple[int, ...] = ()
    """Its prompt and sampled ids; after a fork only the head, which both contexts share."""
    ids_lost: bool = False
    """Whether the engine returned no ids for it: what stands in the context was rendered."""


@dataclass(frozen=True, slots=True)
class PromptLink:
    """A prompt, expressed by its parent."""

    parent_seq: int | None
    kept: int
    new_ids: tuple[int, ...] | None
    """None for engines without token ids."""
    drift: Drift


def link_prompt(
    anchor: PromptAnchor, prompt: Sequence[int] | None, *, fresh: bool, stripped: bool = False
) -> PromptLink:
    """How `prompt` follows from `anchor`.

    fresh: it is the first prompt of a context (class `forked`). stripped: the newest answer appears
    without its thought. Otherwise a prompt that starts with the whole anchor is `clean`; one that
    does not, or whose anchor has lost its ids, is `realigned`.
    """
    if prompt is None:
        return PromptLink(
            anchor.seq, 0, None, "forked" if fresh else "stripped" if stripped else "clean"
        )
    kept_ids = 0 if anchor.seq is None else common_prefix_length(anchor.ids, prompt)
    if fresh:
        drift: Drift = "forked"
    elif kept_ids == len(anchor.ids) and not anchor.ids_lost:
        drift = "clean"
    else:
        drift = "stripped" if stripped else "realigned"
    return PromptLink(anchor.seq, kept_ids, tuple(prompt[kept_ids:]), drift)


def common_prefix_length(first: Sequence[int], second: Sequence[int]) -> int:
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


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """What one step adds to the context; after a fork, the pair (S₁:ₖ, oₖ) is the first."""

    step: int
    """Number of the step; for the pair of a fork that of step k."""
    messages: tuple[Message, ...]
    ids: tuple[int, ...]
    """Token ids of answer and observation, up to the opening of the next answer; empty without."""
    size: int
    """Tokens; reckoned for engines without token ids."""
    results: tuple[ToolResult, ...]
    tail: str
    guidance: tuple[DeliveredGuidance, ...]
    """Guidance joined to this step's observation."""
    earlier_guidance: tuple[DeliveredGuidance, ...] = ()
    """Guidance of everything a fork compressed before, kept verbatim."""
    stripped: bool = False
    """Whether the thought was left out."""
    answer: int = 0
    """How many of `ids` are the answer as it was sampled."""
    summary: bool = False
    files: tuple[str, ...] = ()
    """Paths that the step changed."""
    shown_characters: Mapping[str, int] = field(default_factory=dict)
    """How much is shown of guidance of this step that does not fit whole."""

    def observed(self) -> str:
        """The step's observation without messages from people."""
        return context_messages.observation_text(self.results, self.tail, ())


class Context:
    """One context of one rollout."""

    def __init__(
        self,
        head: Sequence[Message],
        head_ids: tuple[int, ...] | None,
        head_size: int,
        anchor: PromptAnchor,
    ) -> None:
        """anchor: what its first prompt is measured against (the summary's sample of a fork)."""
        self.head = tuple(head)
        self.head_ids = head_ids
        self.head_size = head_size
        self.entries: list[ContextEntry] = []
        self.anchor = anchor
        self.has_no_sample = True
        """Whether nothing was sampled in this context yet."""
        self._messages = list(head)
        self._ids = list(head_ids) if head_ids is not None else None
        self._size = head_size

    def add(self, entry: ContextEntry) -> None:
        """Append one entry."""
        self.entries.append(entry)
        self._messages += entry.messages
        self._size += entry.size
        if self._ids is not None:
            self._ids += entry.ids

    def anchor_sample(
        self, seq: int, prompt: Sequence[int] | None, ids: Sequence[int] | None
    ) -> None:
        """Take note that a sample of the policy was stored: the next prompt is compared with it."""
        lost = prompt is not None and ids is None
        self.anchor = PromptAnchor(seq, (*(prompt or ()), *(ids or ())), lost)
        self.has_no_sample = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt as messages."""
        return tuple(self._messages)

    @property
    def prompt_ids(self) -> tuple[int, ...] | None:
        """The prompt as token ids; None for engines without."""
        return None if self._ids is None else tuple(self._ids)

    @property
    def size(self) -> int:
        """Tokens of the prompt."""
        return self._size

    @property
    def begins_with_summary(self) -> bool:
        """Whether the first entry is a summary."""
        return bool(self.entries) and self.entries[0].summary

    @property
    def last_is_stripped(self) -> bool:
        """Whether the newest answer stands without its thought."""
        return bool(self.entries) and self.entries[-1].stripped

    def guidance_of(self, entries: int) -> tuple[DeliveredGuidance, ...]:
        """All guidance of the first `entries` entries, in order, that of earlier forks first."""
        by_id = {
            guidance.id: guidance
            for entry in self.entries[:entries]
            for guidance in (*entry.earlier_guidance, *entry.guidance)
        }
        return tuple(by_id.values())
