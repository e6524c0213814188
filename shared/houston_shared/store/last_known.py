"""Whether what was read is how things stand, or how they stood when the last daemon ended.

A rollout stays `running` in the database of a daemon that is gone: who shows it says so. It knows
the lock and the newest event, and nothing of what is shown.
"""

from houston_shared import lock
from houston_shared.clock import local
from houston_shared.store import opening
from houston_shared.store.queries import progress
from houston_shared.store.reader import Reader


def as_of(reader: Reader) -> int | None:
    """When the newest event was stored, UTC microseconds, where no daemon runs; None where one does
    (what is read is how things stand) and where there is no event.

    To be asked after the rest was read: a daemon that ends meanwhile is told of.
    """
    if lock.holder(reader.home) is not None or not opening.written(reader.home):
        return None
    newest = reader.run(progress.newest(1))
    return newest[-1].at if newest else None


def sentence(at: int) -> str:
    """One line for people."""
    return f"No daemon runs: this is the state of {local(at)}; next: houston daemon start"
