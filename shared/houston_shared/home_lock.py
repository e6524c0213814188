"""Who runs on a home: an flock on `daemon.lock` decides, its content is for people and signals.

The kernel lets go of the lock however its holder ends, so there is no stale lock to clean up. The
descriptor is close-on-exec: a child that outlives the daemon can never hold the home.
"""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable

import msgspec

from houston_shared.atomic_file import read_json_file
from houston_shared.errors import HoustonError
from houston_shared.home import Home, unreadable_home

NOT_STARTED = "The daemon was not started."
_TRIES = 20
_PAUSE_SECONDS = 0.01


class HomeOwner(msgspec.Struct, frozen=True):
    """The daemon that holds a home."""

    pid: int
    since: str
    """When it took the home, ISO 8601 in UTC."""
    configuration: str = ""
    """Fingerprint of the configuration it runs with."""
    source: str = ""
    """The file that configuration was read from."""
    service: str = ""
    """The systemd unit it runs as, `user houston.service`; empty for none."""


class HomeLock:
    """The lock of one home, held from `take` until `release` or the end of the process."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._fd = -1
        self.died: HomeOwner | None = None
        """Who held it last and died: its name was still there when it was taken."""

    def take(self, owner: HomeOwner, effect: str = NOT_STARTED) -> HomeOwner | None:
        """Hold the home and return None, or return who holds it. Raises HoustonError.

        effect: what is said when it cannot be held, because the home cannot be written.
        Tries for a fifth of a second: `find_running_daemon` touches the lock for an instant to
        look at it.
        """
        try:
            fd = os.open(self._home.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise unusable_home(self._home, problem, effect) from None
        if not _retry_briefly(lambda: _try_lock(fd, fcntl.LOCK_EX)):
            other_owner = _read_lock_file(fd)
            os.close(fd)
            return other_owner
        try:
            before = _read_lock_file(fd)
            self.died = before if before.pid else None
            os.fchmod(fd, 0o644)  # members of the group look here; the folder keeps others out
            _write_owner(fd, owner)
            os.fsync(fd)  # after a power cut it tells the next daemon that this one died
        except OSError as problem:
            os.close(fd)
            raise unusable_home(self._home, problem, effect) from None
        self._fd = fd
        return None

    def describe(self, owner: HomeOwner) -> None:
        """Say something else of the holder, as of an edited configuration. Raises OSError."""
        _write_owner(self._fd, owner)

    def release(self, leave: HomeOwner | None = None) -> None:
        """Release the home. leave: whom to name as the daemon that died on it, if any.
        Idempotent."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):  # a disk that fails: the lock decides
            _write_owner(self._fd, leave or HomeOwner(pid=0, since=""))
        os.close(self._fd)
        self._fd = -1


def find_running_daemon(home: Home) -> HomeOwner | None:
    """The daemon that runs on `home` now, or None. Reads only; raises HoustonError if it may not.

    An owner with pid 0 holds the lock and has not yet written who it is.
    """
    try:
        fd = os.open(home.lock_file, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise unreadable_home(home.path, problem) from None
    try:
        return None if _try_lock(fd, fcntl.LOCK_SH) else _read_lock_file(fd)
    finally:
        os.close(fd)


def find_dead_daemon(home: Home) -> HomeOwner | None:
    """The daemon that let the home go by dying: nobody holds it, and the name is still there.

    None after a clean stop, or while one runs. Raises HoustonError as `find_running_daemon` does.
    """
    if not home.lock_file.exists() or find_running_daemon(home) is not None:
        return None
    owner = read_json_file(home.lock_file, HomeOwner)
    return owner if owner and owner.pid else None


def unusable_home(home: Home, problem: OSError, effect: str = NOT_STARTED) -> HoustonError:
    """The sentence for a home that cannot be written; effect: what was not done therefore."""
    where = problem.filename or home.path
    if isinstance(problem, _WRONG_TYPE):
        place_text, do = f": {where}", f"Move {where} away: Houston makes a new one."
    elif problem.errno == errno.EROFS:
        place_text, do = f" ({where})", "Make it writable, or name another --home."
    elif isinstance(problem, PermissionError):
        place_text, do = f" ({where})", "Run it as the user that owns it, or name another --home."
    else:
        place_text, do = "", "Free space or grant permission there, or name another --home."
    return HoustonError(
        f"The home {home.path} cannot be used: {problem.strerror}{place_text}.", effect, do
    )


_WRONG_TYPE = (IsADirectoryError, NotADirectoryError, FileExistsError)


def _try_lock(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _retry_briefly(attempt: Callable[[], bool]) -> bool:
    for _ in range(_TRIES):
        if attempt():
            return True
        time.sleep(_PAUSE_SECONDS)
    return attempt()


def _write_owner(fd: int, owner: HomeOwner) -> None:
    """Write before cutting: the file keeps its block, which a full disk would not give again."""
    line = msgspec.json.encode(owner) + b"\n"
    os.pwrite(fd, line, 0)
    os.ftruncate(fd, len(line))


def _read_lock_file(fd: int) -> HomeOwner:
    try:
        return msgspec.json.decode(os.pread(fd, 4096, 0), type=HomeOwner)
    except msgspec.DecodeError:
        return HomeOwner(pid=0, since="")
