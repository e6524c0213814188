"""What a message's handler works on: the open transaction, the live workers, and what follows.

Handlers read and append; they never commit, send or wait. What must happen after the commit
(`tells`, `later`) is collected here and dropped again when the message is refused.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from houston_daemon.recorder.people.presence import Presence
from houston_daemon.recorder.protocol import RecorderEvent
from houston_daemon.recorder.steps.journal import Journal, Mark
from houston_daemon.recorder.workers import Workers
from houston_shared.home import Home
from houston_shared.records import RolloutState

if TYPE_CHECKING:
    from houston_daemon.recorder.people.cleaning import Asked


class Rollout(NamedTuple):
    """The columns of a rollout that decide what may happen to it."""

    id: str
    state: RolloutState
    paused_by: str
    reason: str
    cancelling: str
    engine: str
    lease: int
    steps: int
    first_step: int
    active_us: int
    activity: str
    spec_seq: int
    head_seq: int | None
    fork_seq: int | None


_SELECT = f"SELECT {', '.join(Rollout._fields)} FROM rollouts WHERE id = ?"


@dataclass(slots=True)
class Store:
    """One recorder's state while its thread runs."""

    home: Home
    connection: sqlite3.Connection
    journal: Journal
    workers: Workers
    tells: list[RecorderEvent] = field(default_factory=list)
    """What the supervisor hears after the commit."""
    later: list[Callable[[], None]] = field(default_factory=list)
    """Changes of memory that hold only once the transaction is on disk."""
    cleaning: list["Asked"] = field(default_factory=list)
    """Orders to free hosts, from the commit on until the process for them begins."""
    presence: Presence = field(default_factory=Presence)
    draining: bool = False
    sound: set[str] = field(default_factory=set)
    """Rollouts whose context was checked since the start."""

    def rollout(self, id: str) -> Rollout | None:
        """The rollout as it stands in the open transaction."""
        row = self.connection.execute(_SELECT, (id,)).fetchone()
        return Rollout(*row) if row else None

    def mark(self) -> "Point":
        """A point to come back to."""
        return Point(self.journal.mark(), len(self.tells), len(self.later))

    def back(self, point: "Point") -> None:
        """Drop what followed `point`; the caller has rolled the database back."""
        self.journal.back(point.journal)
        del self.tells[point.tells :]
        del self.later[point.later :]


class Point(NamedTuple):
    """Where a savepoint or transaction began."""

    journal: Mark
    tells: int
    later: int
