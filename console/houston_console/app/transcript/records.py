"""What the console keeps of the store in memory beside the shared records: one row a line.

They hold what one line shows and nothing else; the whole of a step is read when it is unfolded.
"""

from typing import NamedTuple


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
    thought: str
    """The first words of its thought."""
