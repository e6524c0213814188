"""The context: head, then entries that are only ever added. A fork makes a new one.

`Context.add` is the one door through which messages and token ids grow, so prompt(t) is always a
prefix of prompt(t+1). It knows neither engines nor dialects: entries come rendered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from houston_daemon.rollout.ledger import Anchor
from houston_shared import observation
from houston_shared.records import Delivered, Message, Result


@dataclass(frozen=True, slots=True)
class Entry:
    """What one step adds to the context; after a fork, the pair (S₁:ₖ, oₖ) is the first."""

    step: int
    """Number of the step; for the pair of a fork that of step k."""
    messages: tuple[Message, ...]
    ids: tuple[int, ...]
    """Token ids of answer and observation, up to the opening of the next answer; empty without."""
    size: int
    """Tokens; reckoned for engines without token ids."""
    results: tuple[Result, ...]
    tail: str
    guidance: tuple[Delivered, ...]
    """Guidance joined to this step's observation."""
    earlier: tuple[Delivered, ...] = ()
    """Guidance of everything a fork compressed before, kept verbatim."""
    stripped: bool = False
    """Whether the thought was left out."""
    answer: int = 0
    """How many of `ids` are the answer as it was sampled."""
    summary: bool = False
    files: tuple[str, ...] = ()
    """Paths that the step changed."""
    shown: Mapping[str, int] = field(default_factory=dict)
    """How much is shown of guidance of this step that does not fit whole."""

    def observed(self) -> str:
        """The step's observation without what people said."""
        return observation.text(self.results, self.tail, ())


class Context:
    """One context of one rollout."""

    def __init__(
        self,
        head: Sequence[Message],
        head_ids: tuple[int, ...] | None,
        head_size: int,
        anchor: Anchor,
    ) -> None:
        """anchor: what its first prompt is measured against (the summary's sample of a fork)."""
        self.head = tuple(head)
        self.head_ids = head_ids
        self.head_size = head_size
        self.entries: list[Entry] = []
        self.anchor = anchor
        self.fresh = True
        """Whether nothing was sampled in this context yet."""
        self._messages = list(head)
        self._ids = list(head_ids) if head_ids is not None else None
        self._size = head_size

    def add(self, entry: Entry) -> None:
        """Append one entry."""
        self.entries.append(entry)
        self._messages += entry.messages
        self._size += entry.size
        if self._ids is not None:
            self._ids += entry.ids

    def sampled(self, seq: int, prompt: Sequence[int] | None, ids: Sequence[int] | None) -> None:
        """A sample of the policy was stored: the next prompt is measured against it."""
        lost = prompt is not None and ids is None
        self.anchor = Anchor(seq, (*(prompt or ()), *(ids or ())), lost)
        self.fresh = False

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
    def forked(self) -> bool:
        """Whether the first entry is a summary."""
        return bool(self.entries) and self.entries[0].summary

    @property
    def stripped(self) -> bool:
        """Whether the newest answer stands without its thought."""
        return bool(self.entries) and self.entries[-1].stripped

    def heard(self, entries: int) -> tuple[Delivered, ...]:
        """All guidance of the first `entries` entries, in order, that of earlier forks first."""
        said = {
            one.id: one
            for entry in self.entries[:entries]
            for one in (*entry.earlier, *entry.guidance)
        }
        return tuple(said.values())
