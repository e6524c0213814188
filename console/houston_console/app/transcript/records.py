"""What the console keeps of the store in memory beside the shared records: one row a line.

They hold what one line shows and nothing else; the whole of a step is read when it is unfolded.
"""

from typing import NamedTuple

from houston_shared.store.queries.people import Bookmark, Note
from houston_shared.store.queries.verdicts import Given


class StepRow(NamedTuple):
    """One step as its folded line shows it; columns of `steps`, then what is joined to them."""

    step: int
    attempt: int
    tools: str
    calls: int
    errors: int
    guided: int
    attention: str
    score: float | None
    drift: str
    last_seq: int
    open: int
    """1 while it has no observation."""
    forked: int
    """1 when a new context begins before it."""
    files: int
    """Files that it changed."""
    added: int
    removed: int
    verdict: str
    """Source and 1 for keep or 0 for mask, e.g. `human0`; the one that counts, empty for none."""
    marked: int
    """1 with somebody's bookmark."""
    thought: str
    """The first words of its thought."""
    noted: bool = False
    """Whether somebody left a note on it."""


class Beside(NamedTuple):
    """What people and judges said of one step: what an unfolded step shows beside its own words."""

    verdicts: tuple[Given, ...] = ()
    """The source that counts first."""
    bookmarks: tuple[Bookmark, ...] = ()
    notes: tuple[Note, ...] = ()


NOTHING = Beside()
