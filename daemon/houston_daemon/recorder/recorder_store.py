"""What handlers work on: the open transaction, live workers, presence, effects after the commit.

Handlers read and append through `Store`; they never commit, send or wait. Effects after the commit
(`supervisor_events`, `after_commit`) are collected here and dropped when the message is refused.
Presence, who looks at which rollout and what they have seen of it, is kept in memory and written
every few seconds as rows, without events.
"""

import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from houston_daemon.maintenance.host_cleanup import CleanupOrder
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import JournalMark, JournalWriter
from houston_daemon.recorder.live_workers import LiveWorkers
from houston_daemon.recorder.recorder_handle import RecorderEvent
from houston_shared.home import Home
from houston_shared.records import ENDED_STATES, Record, RolloutState
from houston_shared.store import store_reader
from houston_shared.store.journal_events import FetchBlob, ReadPlan
from houston_shared.store.presence_queries import IDLE_US, LOOK_COLUMNS, SILENCE_US
from houston_shared.times_and_counts import now_us
from houston_shared.wire import EngineReplica, ReportPresence

T = TypeVar("T")
R = TypeVar("R", bound=Record)

PRESENCE_WRITE_SECONDS = 5.0
"""Between two writes of what changed in memory."""
MAX_REMEMBERED_CONSOLES = 1_000
"""Consoles and rows that are kept in memory at most."""

_INSERT_LOOK = f"INSERT OR REPLACE INTO looks ({LOOK_COLUMNS}) VALUES ({', '.join('?' * 17)})"
_SELECT_LOOK = f"SELECT {LOOK_COLUMNS} FROM looks WHERE rollout = ? AND uid = ? AND name = ?"
_UPSERT_ANNOTATOR = (
    "INSERT INTO annotators (name, uid, verified, rollout, step, last_seen)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET uid = excluded.uid,"
    " verified = excluded.verified, rollout = excluded.rollout, step = excluded.step,"
    " last_seen = excluded.last_seen WHERE uid IS excluded.uid OR verified <= excluded.verified"
)


class CleanupRequest(NamedTuple):
    """An order, and who gave it."""

    order: CleanupOrder
    author: Author


class _PresenceKey(NamedTuple):
    rollout: str
    uid: int
    name: str


class _ConsoleView(NamedTuple):
    """Where the console of a process looked last."""

    rollout: str
    reported_at: float
    """By the monotonic clock, seconds; so are the next two."""


@dataclass(slots=True)
class _PresenceEntry:
    """A row of `looks`, and up to when its times are counted."""

    rollout: str
    name: str
    uid: int
    verified: int
    first: int
    last: int
    here: int = 0
    visits: int = 0
    visit_at: int = 0
    seq: int = 0
    step: int = 0
    seen_at: int = 0
    before_seq: int = 0
    before_step: int = 0
    before_at: int = 0
    looked_us: int = 0
    active_us: int = 0
    looked: float = 0.0
    active: float = 0.0

    @property
    def row(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in LOOK_COLUMNS.replace(",", "").split())

    def count(self, since: float, now: float, active: bool) -> None:
        """Time from `since` to `now` was spent here; of two consoles it counts once."""
        self.looked_us += round(max(0.0, now - max(since, self.looked)) * 1e6)
        self.looked = max(self.looked, now)
        if active:
            self.active_us += round(max(0.0, now - max(since, self.active)) * 1e6)
            self.active = max(self.active, now)

    def has_visit_ended(self, at: int, active: bool) -> bool:
        """Whether the newest visit has ended, as somebody says that they look."""
        silent = at - self.last > SILENCE_US
        idle = active and at - max(self.seen_at, self.visit_at) > IDLE_US
        return not self.visits or silent or idle

    def begin_visit(self, at: int) -> None:
        """A new visit."""
        self.visits += 1
        self.visit_at = at
        self.before_seq, self.before_step = self.seq, self.step
        self.before_at = self.seen_at


class PresenceTracker:
    """Of one recorder; belongs to its thread."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], int] = now_us
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._consoles: dict[tuple[int, str, int], _ConsoleView] = {}
        self._looks: dict[_PresenceKey, _PresenceEntry] = {}
        self._people: dict[str, tuple[object, ...]] = {}
        self._unwritten: dict[_PresenceKey | str, int] = {}
        """What memory has and the database has not; with a number that each change raises."""
        self._changes = 0
        self._written = 0.0

    def note(self, store: "Store", message: ReportPresence, author: Author) -> None:
        """Somebody says where they look."""
        now, at, rollout = self._clock(), self._wall(), message.rollout[:80]
        console = (author.uid, author.name, author.pid)
        before = self._consoles.get(console)
        if before and before.rollout:
            self._leave(store, before, author, now, message)
        begins = before is None or before.rollout != rollout
        if len(self._consoles) >= MAX_REMEMBERED_CONSOLES:
            self._consoles.clear()
        self._consoles[console] = _ConsoleView(rollout, now)
        cursor = store.connection.execute("SELECT last_seq FROM rollouts WHERE id = ?", (rollout,))
        if newest := cursor.fetchone():
            begins |= self._look(store, message, author, at, newest[0])
        look = (author.name, author.uid, int(author.verified), rollout, message.step, at)
        self._people[author.name] = look
        self._mark_changed(author.name)
        if begins:
            self.write(store)

    def due(self, last: bool = False) -> bool:
        """Whether something waits to be written; with `last`, at once."""
        waits = bool(self._unwritten)
        return waits and (last or self._clock() - self._written >= PRESENCE_WRITE_SECONDS)

    def write(self, store: "Store") -> None:
        """Write what changed, in the open transaction."""
        self._written = self._clock()
        for key in self._unwritten:
            if isinstance(key, _PresenceKey):
                store.connection.execute(_INSERT_LOOK, self._looks[key].row)
            else:
                store.connection.execute(_UPSERT_ANNOTATOR, self._people[key])
        written = dict(self._unwritten)
        store.after_commit.append(lambda: self._forget(written))

    def _look(
        self, store: "Store", message: ReportPresence, author: Author, at: int, newest: int
    ) -> bool:
        """Whether a visit begins."""
        look = self._row(store.connection, message.rollout, author, at)
        begins = look.has_visit_ended(at, message.active)
        if begins:
            look.begin_visit(at)
        look.last, look.here = at, 1
        if message.active:
            look.seq, look.step, look.seen_at = newest, message.step, at
        self._mark_changed(_PresenceKey(look.rollout, look.uid, look.name))
        return begins

    def _leave(
        self,
        store: "Store",
        before: _ConsoleView,
        author: Author,
        now: float,
        message: ReportPresence,
    ) -> None:
        """Count the time since that console's last word, and see whether its person has left."""
        silent = (now - before.reported_at) * 1e6 > SILENCE_US
        if silent and before.rollout == message.rollout:
            return
        look = self._row(store.connection, before.rollout, author, self._wall())
        if not silent:
            look.count(before.reported_at, now, message.active)
        if before.rollout != message.rollout:
            look.here = int(self._is_on_other_console(before.rollout, author, now))
        if look.visits:
            self._mark_changed(_PresenceKey(look.rollout, look.uid, look.name))

    def _is_on_other_console(self, rollout: str, author: Author, now: float) -> bool:
        """Whether another console of the same person looks at a rollout."""
        return any(
            view.rollout == rollout and (now - view.reported_at) * 1e6 <= SILENCE_US
            for (uid, name, pid), view in self._consoles.items()
            if (uid, name) == (author.uid, author.name) and pid != author.pid
        )

    def _row(
        self, connection: sqlite3.Connection, rollout: str, author: Author, at: int
    ) -> _PresenceEntry:
        key = _PresenceKey(rollout, author.uid, author.name)
        look = self._looks.get(key)
        if look is None:
            stored = connection.execute(_SELECT_LOOK, key).fetchone()
            fresh = (rollout, author.name, author.uid, int(author.verified), at, at)
            look = _PresenceEntry(*stored) if stored else _PresenceEntry(*fresh)
            self._looks[key] = look
        look.verified = int(author.verified)
        return look

    def _mark_changed(self, key: _PresenceKey | str) -> None:
        self._changes += 1
        self._unwritten[key] = self._changes

    def _forget(self, written: dict[_PresenceKey | str, int]) -> None:
        """It is on disk. What changed again meanwhile stays; rows that are quiet are let go."""
        for key, change in written.items():
            if self._unwritten.get(key) == change:
                del self._unwritten[key]
        if len(self._looks) + len(self._people) > MAX_REMEMBERED_CONSOLES:
            kept_keys = self._unwritten
            self._looks = {key: row for key, row in self._looks.items() if key in kept_keys}
            self._people = {name: row for name, row in self._people.items() if name in kept_keys}


class RolloutRow(NamedTuple):
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

    @property
    def has_ended(self) -> bool:
        """Whether nothing can happen to the rollout any more."""
        return self.state in ENDED_STATES


_SELECT_ROLLOUT = f"SELECT {', '.join(RolloutRow._fields)} FROM rollouts WHERE id = ?"
_SELECT_ROLLOUTS = _SELECT_ROLLOUT.replace("= ?", "IN (SELECT value FROM json_each(?))")


@dataclass(slots=True)
class Store:
    """One recorder's state while its thread runs."""

    home: Home
    connection: sqlite3.Connection
    journal: JournalWriter
    workers: LiveWorkers
    supervisor_events: list[RecorderEvent] = field(default_factory=list)
    """What the supervisor hears after the commit."""
    after_commit: list[Callable[[], None]] = field(default_factory=list)
    """Changes of memory that hold only once the transaction is on disk."""
    cleanup_requests: list[CleanupRequest] = field(default_factory=list)
    """Orders to free hosts, from the commit on until the process for them begins."""
    presence: PresenceTracker = field(default_factory=PresenceTracker)
    draining: bool = False
    replicas: Mapping[str, tuple[EngineReplica, ...]] = field(default_factory=dict)
    """Engine that has several servers → those servers."""
    checked_rollouts: set[str] = field(default_factory=set)
    """Rollouts whose context was checked since the start."""

    def read_rollout(self, id: str) -> RolloutRow | None:
        """The rollout as it stands in the open transaction."""
        row = self.connection.execute(_SELECT_ROLLOUT, (id,)).fetchone()
        return RolloutRow(*row) if row else None

    def read_rollouts(self, ids: Collection[str]) -> dict[str, RolloutRow]:
        """By id, those of these that there are, as they stand in the open transaction."""
        ids_json = msgspec.json.encode(list(ids)).decode()
        rows = self.connection.execute(_SELECT_ROLLOUTS, (ids_json,)).fetchall()
        return {row[0]: RolloutRow(*row) for row in rows}

    def read(self, plan: ReadPlan[T]) -> T:
        """What a read plan returns, on the writer's own connection."""
        try:
            request = next(plan)
            while True:
                if isinstance(request, FetchBlob):
                    request = plan.send(store_reader.read_blob(self.home, request.sha256))
                else:
                    request = plan.send(self.connection.execute(*request[:2]).fetchall())
        except StopIteration as end:
            result: T = end.value
            return result

    def read_record(self, seq: int | None, kind: type[R]) -> R | None:
        """The body of an event; None where there is no event or its body was erased."""
        if seq is None:
            return None
        body, blob = self.connection.execute(
            "SELECT body, blob FROM events WHERE seq = ?", (seq,)
        ).fetchone()
        data = store_reader.read_blob(self.home, blob) if blob else body
        return None if data is None else msgspec.msgpack.decode(data, type=kind)

    def savepoint(self) -> "Savepoint":
        """A point to come back to."""
        return Savepoint(
            self.journal.savepoint(), len(self.supervisor_events), len(self.after_commit)
        )

    def roll_back_to(self, point: "Savepoint") -> None:
        """Drop what followed `point`; the caller has rolled the database back."""
        self.journal.roll_back_to(point.journal)
        del self.supervisor_events[point.supervisor_events :]
        del self.after_commit[point.after_commit :]


class Savepoint(NamedTuple):
    """Where a savepoint or transaction began."""

    journal: JournalMark
    supervisor_events: int
    after_commit: int
