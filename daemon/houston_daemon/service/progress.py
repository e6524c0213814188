"""What the supervisor reads of rollouts: their engine, how it answers them, their closed steps.

A short read-only connection each time; the recorder alone writes.
"""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from houston_shared.records import AWAY


@dataclass(frozen=True, slots=True)
class Standing:
    """One rollout that could go on, as far as the supervisor cares."""

    engine: str
    steps: int
    """Closed steps."""
    waits: bool
    """Paused because its engine is down."""
    away: str = ""
    """Why its worker waits for the engine, in the worker's words; empty when it does not."""


def read_standings(database: Path) -> dict[str, Standing]:
    """Rollouts that are queued, running, or paused for their engine, by id."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=5)) as reader:
        rows = reader.execute(
            "SELECT id, engine, steps, state = 'paused', activity FROM rollouts WHERE state IN"
            " ('queued', 'running') OR (state = 'paused' AND paused_by = 'engine')"
        ).fetchall()
    return {row[0]: Standing(row[1], row[2], bool(row[3]), _away(row[4])) for row in rows}


def _away(activity: str) -> str:
    return activity.removeprefix(AWAY).lstrip(": ") if activity.startswith(AWAY) else ""


def failing(states: Mapping[str, str], standings: Mapping[str, Standing]) -> dict[str, str]:
    """Engines that are there and do not answer as they should → `failing: <reason>`."""
    return {
        one.engine: f"failing: {one.away}"
        for one in standings.values()
        if one.away and states.get(one.engine) == "ready"
    }


def read_ended(database: Path, after: int) -> tuple[list[str], int]:
    """Rollouts that ended with an event later than `after`, and the newest such event."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=5)) as reader:
        rows = reader.execute(
            "SELECT id, last_seq FROM rollouts WHERE state IN ('finished', 'failed', 'cancelled')"
            " AND last_seq > ? ORDER BY last_seq",
            (after,),
        ).fetchall()
    return [row[0] for row in rows], rows[-1][1] if rows else after
