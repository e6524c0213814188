"""Ends an engine that nobody uses any more: its daemon is gone, and no other came in time.

`python -m houston_daemon.service.engine_guard STATE PID STARTED LOCK SECONDS TEMPORARY LOG` runs in
its own session next to each engine. A running daemon holds the lock of its home, and a command that
asks the engine holds `used_lock`. If nobody has held either for SECONDS, or the home was removed
and nobody holds its former lock, the engine and its children are ended. After the engine's end,
whoever ended it, the guard removes the engine's folder for temporary files and shared memory that
only the engine had mapped. It starts nothing.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from houston_daemon.engines.engine_process import (
    ServerState,
    end_server,
    process_start_time,
    server_processes,
)
from houston_shared.times_and_counts import iso_time, now_us

MAX_CHECK_SECONDS = 5.0
ENGINE_END_SECONDS = 10.0
SHARED_MEMORY_FOLDER = "/dev/shm/"


def start_engine_guard(
    state_file: Path, state: ServerState, lock: Path, seconds: float, log: Path
) -> None:
    """Start guarding an engine unless it is guarded already. Raises OSError.

    lock: of the home. seconds: how long the engine runs on without a daemon and commands.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", __name__, str(state_file), str(state.pid), str(state.started)]
    command += [str(lock), str(seconds), state.temporary, str(log)]
    subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def used_lock(state_file: Path) -> Path:
    """The file that a command locks, shared with others, for as long as it asks the engine."""
    return Path(f"{state_file}.used")


class EngineGuard:
    """The guard of one engine."""

    def __init__(self, state_file: Path, pid: int, started: int, lock: Path) -> None:
        self._state_file, self._pid, self._started = state_file, pid, started
        self._lock = lock
        self._daemon_lock = _open_lock(lock)
        """The lock as it was: a home that is moved keeps it."""
        self._mapped: set[str] = set()

    def wait(self, seconds: float) -> bool:
        """Until the engine has ended (True), or has had no daemon for so long (False)."""
        pause = min(MAX_CHECK_SECONDS, seconds / 4)
        alone_since: float | None = None
        while process_start_time(self._pid) == self._started:
            self._mapped |= _mapped_shared_memory(server_processes(self._state_file, self._pid))
            now = time.monotonic()
            if self._is_in_use():
                alone_since = None
            elif alone_since is None:
                alone_since = now
            elif now - alone_since >= seconds:
                return False
            time.sleep(pause)
        return True

    def end(self) -> None:
        """End the engine and its children."""
        end_server(self._state_file, self._session(), ENGINE_END_SECONDS)

    def clean(self, temporary: str) -> None:
        """Remove what the engine left, once none of its processes is there any more."""
        deadline = time.monotonic() + ENGINE_END_SECONDS
        while server_processes(self._state_file, self._session()) and time.monotonic() < deadline:
            time.sleep(0.2)
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
        all_pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        for path in self._mapped - _mapped_shared_memory(all_pids):
            with suppress(OSError):
                Path(path).unlink()

    def _session(self) -> int:
        return self._pid if process_start_time(self._pid) in (None, self._started) else 0

    def _is_in_use(self) -> bool:
        """Whether a command asks, or a daemon runs on the home, by whatever path it is reached."""
        if self._daemon_lock >= 0 and _is_lock_held(self._daemon_lock):
            return True
        if _is_file_locked(self._lock, fcntl.LOCK_SH):
            return True
        return _is_file_locked(used_lock(self._state_file), fcntl.LOCK_EX)


def _is_file_locked(lock: Path, probe: int) -> bool:
    """probe: the kind of lock that whoever has it keeps others from."""
    opened = _open_lock(lock)
    if opened < 0:
        return False
    try:
        return _is_lock_held(opened, probe)
    finally:
        os.close(opened)


def _open_lock(lock: Path) -> int:
    try:
        return os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _is_lock_held(lock: int, probe: int = fcntl.LOCK_SH) -> bool:
    try:
        fcntl.flock(lock, probe | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def _mapped_shared_memory(pids: list[int]) -> set[str]:
    """Named shared memory that processes of this user have mapped."""
    mapped = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        names = (
            line.partition(SHARED_MEMORY_FOLDER)[2]
            for line in lines
            if SHARED_MEMORY_FOLDER in line
        )
        mapped |= {SHARED_MEMORY_FOLDER + name for name in names if not name.endswith(" (deleted)")}
    return mapped


def main(arguments: list[str]) -> int:
    """Until the engine has ended."""
    state_file, pid, started, lock, seconds, temporary, log = arguments
    guard_lock = Path(f"{state_file}.{pid}.guard")
    fd = os.open(guard_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # it has a guard
    guard = EngineGuard(Path(state_file), int(pid), int(started), Path(lock))
    if not guard.wait(float(seconds)):
        with suppress(OSError), Path(log).open("a") as file:
            file.write(
                f"{iso_time(now_us())} houston: no daemon for {float(seconds):g} s, ending\n"
            )
        guard.end()
    guard.clean(temporary)
    guard_lock.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
