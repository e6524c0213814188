"""Derived rows against a replay of the events, in a process of its own where there is much.

`python -m houston_daemon.recorder.upkeep.verify_replay HOME` prints the findings as JSON: reading,
hashing and the chain go on beside it (`verify_events`), on another core.
"""

import contextlib
import gc
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.recorder.derived.rules import RULES, Event
from houston_daemon.recorder.upkeep.verify_findings import Finding, Findings
from houston_daemon.recorder.upkeep.verify_open import fetch, open_beside
from houston_daemon.recorder.upkeep.verify_tables import compare
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import blobs, bodies

PAGE = 1_000
"""Events of one read transaction."""
TRIES = 3
"""Replays of a live home in which bodies are being erased meanwhile."""
_SELECT = (
    "SELECT seq, rollout, step, attempt, part, kind, at, body, blob, erased"
    " FROM home.events WHERE seq > ? ORDER BY seq LIMIT ?"
)
UNREPLAYABLE = (
    msgspec.MsgspecError,
    sqlite3.Error,
    TypeError,
    ValueError,
    KeyError,
    OverflowError,
    RecursionError,
)
"""What a rule may raise over a header or body that was changed; nothing else is expected here."""
_DECODERS = {kind: msgspec.msgpack.Decoder(type) for kind, type in bodies.TYPES.items()}


class Replay:
    """Writes the derived rows as they should be, into empty tables."""

    def __init__(self, home: Home, connection: sqlite3.Connection, findings: Findings) -> None:
        """connection: the tables to write as `main`; `page` reads the journal in `home`."""
        self._home = home
        self._connection = connection
        self._findings = findings
        self._touched: dict[str, tuple[int, int, int]] = {}
        """By rollout: time, sequence, and the most active time of its events."""
        self.seq = 0
        self.unreplayed: set[str] = set()
        """Rollouts of which nothing is left of some event: their rows cannot be known."""
        self.erasing = 0
        """The last event that erased others."""

    def page(self, size: int) -> bool:
        """Replay the next events; whether there may be more. Raises sqlite3.DatabaseError."""
        rows = fetch(self._connection, _SELECT, self.seq, size)
        for row in rows:
            self.seq = row[0]
            self.one(Event(*row[:7]), *row[7:])
        return len(rows) == size

    def one(self, event: Event, body: Any, blob: Any, erased: Any) -> None:
        """Replay one event."""
        if event.kind == bodies.ASIDE:
            return
        if event.kind == "erased":
            self.erasing = event.seq
        try:
            data = blobs.read(self._home, blob) if blob is not None else body
        except (HoustonError, TypeError, ValueError, OSError):
            data = None  # said by whoever checks the blobs
        if data is None:
            self.unreplayed.add(event.rollout)
            return
        try:
            record = _DECODERS[event.kind].decode(data)
            RULES[event.kind](self._connection, event, record)
            if event.rollout:
                before = self._touched.get(event.rollout)
                active = max(before[2] if before else 0, getattr(record, "active_us", 0))
                self._touched[event.rollout] = event.at, event.seq, active
        except UNREPLAYABLE as problem:
            self._findings.add(
                "body",
                f"Event {event.seq} cannot be replayed ({problem}).",
                event.seq,
                str(event.rollout),
            )

    def finish(self) -> None:
        """What `rules.apply` writes with each event, once for each rollout."""
        for rollout, touched in self._touched.items():
            with contextlib.suppress(UnicodeEncodeError):  # damaged: no row has that id
                self._connection.execute(
                    "UPDATE rollouts SET updated_at = ?, last_seq = ?,"
                    " active_us = max(active_us, ?) WHERE id = ?",
                    (*touched, rollout),
                )


def replay(home: Home) -> list[Finding]:
    """What is wrong with the derived tables; raises sqlite3.DatabaseError, HoustonError."""
    for _ in range(TRIES):
        findings = Findings()
        connection = open_beside(home)
        try:
            if _replayed(home, connection, findings):
                break
        finally:
            connection.close()
    return findings.all


def _replayed(home: Home, connection: sqlite3.Connection, findings: Findings) -> bool:
    """Replay and compare; False when bodies were erased behind our back."""
    (begun,) = connection.execute("SELECT coalesce(max(seq), 0) FROM home.events").fetchone()
    state = Replay(home, connection, findings)
    more = True
    while more:  # one short read transaction a page
        connection.execute("BEGIN")
        more = state.page(PAGE)
        connection.execute("COMMIT")
    connection.execute("BEGIN")
    while state.page(PAGE):
        pass
    state.finish()
    if state.erasing > begun:
        return False
    compare(connection, state.unreplayed, findings)
    return True


class Beside:
    """A replay in a process of its own."""

    def __init__(self, home: Home) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def findings(self) -> list[Finding]:
        """Wait for what it found; raises HoustonError when it could not do its work."""
        said, problem = self._process.communicate()
        if self._process.returncode:
            last = problem.decode(errors="replace").strip().rpartition("\n")[2]
            raise HoustonError(f"The derived tables could not be replayed: {last}.")
        return msgspec.json.decode(said, type=list[Finding])

    def end(self) -> None:
        """Let it go, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def guarded(home: Home) -> list[Finding]:
    """As `replay`; a damage that stops SQLite itself is one finding."""
    try:
        return replay(home)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        findings = Findings()
        findings.add("structure", f"SQLite cannot replay the events: {problem}.")
        return findings.all


if __name__ == "__main__":
    gc.disable()  # nothing here makes cycles, and rows are many
    sys.stdout.buffer.write(msgspec.json.encode(guarded(Home(Path(sys.argv[1])))))
