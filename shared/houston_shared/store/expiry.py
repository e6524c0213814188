"""When a read transaction must end: it is long, and it keeps the WAL from beginning anew.

A long read of a quiet home harms nobody and goes on. Counted from the transaction's begin, looked
at by SQLite while it runs a statement and by the reader between statements.
"""

import time

from houston_shared.home import Home

SECONDS = 1.0
"""A transaction of this age may be cut."""
WAL_KEPT = 32 * 1024 * 1024
"""Bytes that the WAL file keeps; only a reader that does harm makes it longer."""
OPERATIONS = 20_000
"""Steps of SQLite's machine between two looks (about a millisecond)."""


class Expiry:
    """Of one connection's transactions, one after the other."""

    def __init__(self, home: Home) -> None:
        self._wal = home.database.with_name(home.database.name + "-wal")
        self._began = time.monotonic()
        self.cut = False
        """Whether the transaction was cut."""

    def begin(self) -> None:
        """A transaction begins."""
        self._began = time.monotonic()
        self.cut = False

    def look(self) -> bool:
        """Whether the transaction must end now; SQLite's progress handler."""
        if time.monotonic() - self._began < SECONDS:
            return False
        try:
            self.cut = self._wal.stat().st_size > WAL_KEPT
        except OSError:
            return False  # there is no WAL that could be held
        return self.cut
