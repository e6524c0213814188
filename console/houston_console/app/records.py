"""What the console keeps of the store in memory beside the shared records: one row a line.

They hold what one line shows and nothing else; the whole of a step is read when it is unfolded.
"""

from typing import NamedTuple

from houston_shared.records import FileChange
from houston_shared.store.plan import RowRecord


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


class FileRow(RowRecord, frozen=True):
    """One file over the whole rollout."""

    path: str
    changes: int
    """Steps that changed it."""
    added: int
    removed: int
    last_step: int
    kind: str
    """What the last of them did: added, changed, removed."""


class StepChange(NamedTuple):
    """One change of one file and the step that made it."""

    step: int
    change: FileChange
