"""What the supervisor reads from the database: resumable and ended rollouts, and a daemon that
died.

Uses short read-only connections; only the recorder writes. For rollouts that could continue: their
engine, their closed steps, whether they wait. For a daemon that died: its pid and the time of its
last event, reported at the next start in log, command and audit. Why it died, or whether all it
stored is sound, is not known here (`houston verify` checks that).
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.maintenance.durable_copy import open_read_only
from houston_daemon.service.daemon_log import LOGGER
from houston_shared.home import Home
from houston_shared.home_lock import HomeOwner
from houston_shared.records import AWAY_ACTIVITY, AWAY_MARK
from houston_shared.store.event_bodies import DaemonDied
from houston_shared.store.rollout_queries import engine_waited_for
from houston_shared.times_and_counts import iso_time


@dataclass(frozen=True, slots=True)
class ResumableRollout:
    """One rollout that could go on, as far as the supervisor cares."""

    engines: tuple[str, ...]
    """All that it samples with; that of its policy comes first."""
    steps: int
    """Closed steps."""
    waits: bool
    """Paused because its engine is down."""
    away: str = ""
    """Why its worker waits for an engine, in the worker's words; empty when it does not."""
    away_engine: str = ""
    """Which one that is."""


class PersistentReader:
    """A read-only connection that stays open between reads: opening one and reading the schema
    takes fifty times as long as the most frequent read. Used from one thread."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._open = ExitStack()
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection; after an error the next one is new."""
        if self._connection is None:
            self._connection = self._open.enter_context(closing(open_read_only(self._database)))
        try:
            yield self._connection
        except sqlite3.Error:
            self.close()
            raise

    def close(self) -> None:
        """Let it go; the next read opens another. Idempotent."""
        self._connection = None
        self._open.close()


def read_resumable_rollouts(reader: sqlite3.Connection) -> dict[str, ResumableRollout]:
    """Rollouts that are queued, running, or paused for their engine, by id."""
    rows = reader.execute(
        "SELECT id, engine, role_engines, steps, state = 'paused', activity FROM rollouts"
        " WHERE state IN ('queued', 'running') OR (state = 'paused' AND paused_by = 'engine')"
    ).fetchall()
    return {id: _resumable_rollout(*row) for id, *row in rows}


def _resumable_rollout(
    engine: str, roles: str, steps: int, waits: int, activity: str
) -> ResumableRollout:
    own = (role["engine"] for role in json.loads(roles).values())
    engines = tuple(dict.fromkeys((engine, *own)))
    if not activity.startswith(AWAY_ACTIVITY):
        return ResumableRollout(engines, steps, bool(waits))
    why = activity.partition(AWAY_MARK)[2]
    return ResumableRollout(engines, steps, bool(waits), why, engine_waited_for(activity, engine))


def read_paused_rollouts(reader: sqlite3.Connection) -> set[str]:
    """Rollouts that are paused, by whomever."""
    rows = reader.execute("SELECT id FROM rollouts WHERE state = 'paused'").fetchall()
    return {row[0] for row in rows}


def read_living_rollouts(database: Path) -> set[str]:
    """Rollouts that have not ended."""
    with closing(open_read_only(database)) as reader:
        rows = reader.execute(
            "SELECT id FROM rollouts WHERE state IN ('queued', 'running', 'paused')"
        ).fetchall()
    return {row[0] for row in rows}


def find_failing_engines(
    states: Mapping[str, str], resumable: Mapping[str, ResumableRollout]
) -> dict[str, str]:
    """Engines that are there and do not answer as they should → `failing: <reason>`."""
    return {
        rollout.away_engine: f"failing: {rollout.away}"
        for rollout in resumable.values()
        if rollout.away and states.get(rollout.away_engine) == "ready"
    }


def read_ended_rollouts(database: Path, after: int) -> tuple[list[str], int]:
    """Rollouts that ended with an event later than `after`, and the newest event.

    After the first look only what was stored since is read, however many rollouts have ended.
    """
    with closing(open_read_only(database)) as reader:
        reader.execute("BEGIN")
        (newest,) = reader.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        since = "id IN (SELECT rollout FROM events WHERE seq > ? AND kind = 'state') AND" * bool(
            after
        )
        rows = reader.execute(
            f"SELECT id FROM rollouts WHERE {since} state IN ('finished', 'failed', 'cancelled')",
            (after,) if after else (),
        ).fetchall()
    return [row[0] for row in rows], newest


def read_crashed_daemon(owner: HomeOwner | None, home: Home) -> DaemonDied | None:
    """The daemon before this one as the journal keeps it; None when it came to its own end.

    owner: `HomeLock.died`. To be asked before the new daemon stores anything.
    """
    if owner is None:
        return None
    return DaemonDied(pid=owner.pid, since=owner.since, last_stored=_last_event_time(home))


def _last_event_time(home: Home) -> int:
    """When the newest event was stored, UTC microseconds; 0 where that cannot be read."""
    try:
        with closing(open_read_only(home.database)) as reader:
            row = reader.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    except sqlite3.Error:  # whoever opens it for writing says what is wrong with it
        return 0
    return int(row[0]) if row else 0


def report_crash(dead: DaemonDied | None, home: Home) -> str:
    """The report on it for the log and for the command that starts a daemon; empty for None.

    Call it when the store is open.
    """
    if dead is None:
        return ""
    newest = f"; its newest event is from {iso_time(dead.last_stored)}" * bool(dead.last_stored)
    report = (
        f"the last daemon (pid {dead.pid}, since {dead.since}) did not end cleanly{newest}. "
        "Everything that it acknowledged is stored (the journal's end was checked); "
        f"{_describe_resumed_rollouts(home)}."
    )
    LOGGER.warning("%s", report)
    return report


def _describe_resumed_rollouts(home: Home) -> str:
    try:
        with closing(open_read_only(home.database)) as reader:
            resumable = read_resumable_rollouts(reader)
        count = sum(not rollout.waits for rollout in resumable.values())
    except sqlite3.Error as problem:  # a full disk: no reason not to start
        return f"its rollouts could not be counted ({problem})"
    if not count:
        return "no rollout was running"
    return f"{count} rollout{'s continue' if count > 1 else ' continues'}"
