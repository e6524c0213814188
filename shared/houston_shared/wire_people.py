"""What annotators say to the recorder besides guidance: verdicts, order, claims (see `wire`).

Each may be sent again after a lost answer: `request` (or the order itself) tells that it is the
same word. `seen` is the newest event that the sender had read: what somebody else said later about
the same thing is never overwritten unseen.
"""

from typing import Literal

import msgspec

from houston_shared.wire_operators import FromPerson

STEPS = 20_000
"""Steps that one message judges at most: their rows are written while everybody waits (0.1 s)."""
RANGES = 500
"""Ranges that one message judges at most."""
REASON_LIMIT = 2_000
"""Characters of a reason."""
Judgement = Literal["keep", "mask", "undecided"]
"""`undecided` takes a person's verdict back: the rule's or the judge's counts again."""


class JudgedSteps(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One verdict on the closed steps `first` to `last`, both included."""

    first: int
    last: int
    verdict: Judgement
    reason: str = ""


class GiveVerdicts(FromPerson, frozen=True, kw_only=True):
    """A person's verdict on ranges of steps; to undo one, say what stood before."""

    request: str
    """Idempotency key, made by the sender."""
    rollout: str
    steps: tuple[JudgedSteps, ...]
    seen: int = 0
    """Refused when somebody else judged one of these steps after this event; 0 to overrule."""


class Reorder(FromPerson, frozen=True, kw_only=True):
    """Another order of a rollout's queued guidance; delivered first wins."""

    rollout: str
    order: tuple[str, ...]
    """Ids of all that is queued, in the wanted order."""
    seen: tuple[str, ...] = ()
    """The order that the sender saw; refused when it is another by now. Empty: any."""


class Claim(FromPerson, frozen=True, kw_only=True):
    """Look after a rollout, or (with `release`) no longer. Shown to all, enforced for nobody."""

    request: str
    """Idempotency key, made by the sender."""
    rollout: str
    note: str = ""
    """For the next person; the newest one stays until another is left."""
    release: bool = False
    """Refused to who does not hold it."""
    seen: int = 0
    """Refused when somebody else claimed it after this event; 0 to take it over, and to release
    whatever stands."""
