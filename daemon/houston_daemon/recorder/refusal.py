"""The two ways in which the recorder says no, as exceptions inside one message's handling."""

import errno
import shutil
import sqlite3
from pathlib import Path
from typing import Literal

from houston_shared.errors import ExitCode, HoustonError

Code = Literal[
    "STALE_LEASE", "SEQ_CONFLICT", "ENDED", "PROTOCOL", "UNKNOWN", "INVALID", "DISK_FULL"
]

UNCHANGED = "Nothing was changed."
"""The effect of whatever is denied."""
LOW_SPACE = 8 * 1024 * 1024
"""Free bytes under which an I/O error of SQLite is taken for a full disk."""


class Refusal(Exception):
    """A worker's message is not stored; the fields of `wire.Refused`."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code: Code = code
        self.reason = reason


def denial(
    cause: str, next: str = "", effect: str = UNCHANGED, code: int = ExitCode.FAILED
) -> HoustonError:
    """A person's message is not done; raised as the HoustonError that they will read."""
    return HoustonError(cause, effect, next, ExitCode(code))


def is_full(problem: BaseException, folder: Path) -> bool:
    """Whether an error of SQLite or of a file means that there is no space left."""
    if isinstance(problem, OSError):
        return problem.errno in (errno.ENOSPC, errno.EDQUOT)
    if not isinstance(problem, sqlite3.OperationalError):
        return False
    code = getattr(problem, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return True
    # A failed sync is never forgiven: what reached the disk is unknown.
    lost = code in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
    ioerr = code & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    return ioerr and not lost and shutil.disk_usage(folder).free < LOW_SPACE


def is_data(problem: BaseException) -> bool:
    """Whether SQLite refused the values of one message, not the statement or the disk."""
    kinds = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError)
    return isinstance(problem, kinds)
