"""One engine server as a separate process: start it, find it again, check it, end it.

The server leads its own session and outlives the daemon that started it. It is found again by pid
and start time from a state file, so another program that got the pid is never mistaken for it.
Processes that a killed server leaves have the state file's name in their environment and are ended
too. The same code serves vLLM and the embedded server. It does not decide when to restart one.
"""

import hashlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from houston_daemon.hosts import process_table
from houston_shared import atomic_file
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.store.presence_queries import login_name

_STATE_FILE_VARIABLE = "HOUSTON_ENGINE_STATE"
_KILL_SECONDS = 5.0
"""Seconds in which the kernel takes down what was killed."""


class ServerState(msgspec.Struct, frozen=True):
    """What is remembered of a started server."""

    pid: int
    started: int
    """Start time in clock ticks since boot, from /proc."""
    boot: str
    """Which boot that is."""
    url: str
    command: tuple[str, ...]
    temporary: str = ""
    """The folder that it was given for temporary files, such as its sockets; empty for none."""
    file: str = ""
    """The state file that this was written to: in a copy of the home, the server is not the copy's.
    Empty in those of older versions."""
    environment: str = ""
    """Hash of what was added to its environment, which may hold keys; empty in older versions."""


class EngineProcess:
    """A server with its command, address, state file and log.

    url: base address, with or without `/v1`. environment: added to the daemon's own. output: opens
    a descriptor for what it prints, closed here; without it the log file is appended to.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        url: str,
        state_file: Path,
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        output: Callable[[], int] | None = None,
        temporary: Path | None = None,
    ) -> None:
        """temporary: a folder that is made for its temporary files; None for the user's own."""
        self.name = name
        self.url = url
        self._command = tuple(command)
        self._state_file = state_file
        self._log_file = log_file
        self._environment = dict(environment or {})
        added = msgspec.json.encode(self._environment, order="sorted")
        self._environment_hash = hashlib.sha256(added).hexdigest()
        self._output = output or self._append
        self._temporary = temporary
        self._state: ServerState | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> ServerState | None:
        """What is remembered of the server that was started or adopted."""
        return self._state

    @property
    def pid(self) -> int | None:
        """Process id of the server that was started or adopted."""
        return self._state.pid if self._state else None

    def start(self) -> None:
        """Start the server; it answers later. Raises HoustonError when it cannot be started.

        Processes that an earlier server of this state file left are ended first.
        """
        self.stop()
        try:
            own = self._own_folders()
            self._child = self._spawn(own)
        except OSError as problem:
            if self._temporary is not None:
                with suppress(OSError):  # it is tried again, each time with another
                    self._temporary.rmdir()
            raise HoustonError(f"Engine {self.name} cannot be started: {problem}.") from problem
        point("supervisor.engine.started")
        pid = self._child.pid
        self._state = ServerState(
            pid,
            process_start_time(pid) or 0,
            _boot_id(),
            self.url,
            self._command,
            own.get("TMPDIR", ""),
            str(self._state_file.absolute()),
            self._environment_hash,
        )
        _write_state(self._state_file, self._state)
        point("supervisor.engine.recorded")

    def _spawn(self, own: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """own: variables that its folders are in. Raises OSError."""
        output = self._output()
        try:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **os.environ,
                    **own,
                    **self._environment,
                    _STATE_FILE_VARIABLE: str(self._state_file.absolute()),
                },
            )
        finally:
            os.close(output)

    def _own_folders(self) -> dict[str, str]:
        """Where it keeps temporary files; what torch compiled stays for the next start."""
        if self._temporary is None:
            return {}
        self._temporary.mkdir(mode=0o700, parents=True)
        compiled = Path(tempfile.gettempdir()) / f"torchinductor_{login_name(os.getuid())}"
        compile_folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(compiled))
        return {"TMPDIR": str(self._temporary), "TORCHINDUCTOR_CACHE_DIR": compile_folder}

    def _append(self) -> int:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(fd, 0o600)
        return fd

    def adopt(self) -> bool:
        """Find the server of an earlier daemon; return whether it still runs.

        Its address becomes `url`: a server is reached where it was started.
        """
        state = self._read_state()
        if state is None or not _is_same_process(state):
            return False
        self._state, self.url = state, state.url
        return True

    def is_started_alike(self) -> bool:
        """Whether an adopted server has this command and environment, as far as is recorded."""
        state = self._state
        alike = ("", self._environment_hash)
        return state is not None and state.command == self._command and state.environment in alike

    def alive(self) -> bool:
        """Whether the process runs."""
        if self._child is not None:
            self._child.poll()  # our own child would stay a zombie
        return self._state is not None and _is_same_process(self._state)

    def healthy(self, seconds: float = 5.0) -> bool:
        """Whether it runs and answers /health within `seconds`."""
        return self.alive() and is_healthy(self.url, seconds)

    def failing_line(self) -> str:
        """The log line that best explains why it ended; empty when there is none."""
        return find_error_line(self._log_file)

    def stop(self, seconds: float = 10.0) -> None:
        """End the server and its children: with SIGTERM, and after `seconds` by force."""
        end_server(self._state_file, self._session(), seconds)
        if self._child is not None:
            self._child.wait()
        self._state = self._child = None
        self._state_file.unlink(missing_ok=True)

    def _read_state(self) -> ServerState | None:
        """What the state file says; None where it was copied here with its folder."""
        state = atomic_file.read_json_file(self._state_file, ServerState, FileNotFoundError)
        return state if state and state.file in ("", str(self._state_file.absolute())) else None

    def _session(self) -> int:
        """The session whose leader the server was; 0 when it may be somebody else's by now.

        vLLM's engine core writes its title over its environment, so that the mark is gone; it
        outlives a killed server and keeps the GPU's memory.
        """
        state = self._state or self._read_state()
        if state is None or state.boot != _boot_id():
            return 0
        return state.pid if process_start_time(state.pid) in (None, state.started) else 0


def end_server(state_file: Path, session: int, seconds: float) -> None:
    """End all processes of a state file: with SIGTERM, and after `seconds` by force.

    session: the session that the server led; 0 if the number may belong to others by now.
    """
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, _KILL_SECONDS)):
        process_table.send_signal(server_processes(state_file, session), number)
        deadline = time.monotonic() + patience
        while server_processes(state_file, session) and time.monotonic() < deadline:
            time.sleep(0.05)


def server_processes(state_file: Path, session: int) -> list[int]:
    """Living processes of a server, or of one before it under the same state file."""
    mark = f"{_STATE_FILE_VARIABLE}={state_file.absolute()}".encode()
    return [
        pid
        for pid, stat in process_table.list_processes().items()
        if not stat.ended
        and (mark in _environment_marks(pid) or (session and stat.session == session))
    ]


def kill_by_environment(marks: Iterable[bytes], seconds: float) -> None:
    """Kill all processes with a mark (`NAME=value`) in their environment; wait up to `seconds`."""
    deadline, known_marks = time.monotonic() + seconds, frozenset(marks)
    while pids := [
        pid
        for pid, stat in process_table.list_processes().items()
        if not stat.ended and not known_marks.isdisjoint(_environment_marks(pid))
    ]:
        process_table.send_signal(pids, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return
        time.sleep(0.02)


def is_healthy(url: str, seconds: float = 5.0) -> bool:
    """Whether a server of this machine at `url` answers /health, without TLS."""
    import httpx  # 70 ms that no start of the daemon pays which has no engine to ask

    address = url.rstrip("/").removesuffix("/v1") + "/health"
    try:
        return httpx.get(address, timeout=seconds, trust_env=False, verify=False).is_success
    except httpx.HTTPError:
        return False


def find_error_line(log: Path, tail: int = 64_000) -> str:
    """Return the last line of a log's tail that names an error, or else its last line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - tail))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or "error:" in line]
    return (named or lines or [""])[-1]


def process_start_time(pid: int) -> int | None:
    """Start time of a living process in clock ticks since boot; None for a zombie or nothing."""
    stat = process_table.read_process_stat(pid)
    return None if stat is None or stat.ended else stat.started


def _environment_marks(pid: int) -> list[bytes]:
    return process_table.read_environment(pid).split(b"\0")


def _is_same_process(state: ServerState) -> bool:
    return state.boot == _boot_id() and process_start_time(state.pid) == state.started


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _write_state(file: Path, state: ServerState) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_atomically(file, msgspec.json.encode(state), durable=False)
