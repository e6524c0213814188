"""Starts workers through the fork server, and keeps that server alive.

The fork server is started with the first worker, and again if it was killed; its workers end with
it and are reported as lost. A silent fork server is killed; one that keeps ending is restarted
after longer and longer delays. `worker_timeout` decides when a silent worker counts as dead,
`worker_pool` which rollouts get one. Everything here belongs to the supervisor's main thread.
"""

import contextlib
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.service.daemon_log import FORK_SERVER_LOG, LOGGER, read_last_line
from houston_daemon.service.fork_server import (
    FORK_SERVER,
    MESSAGE_BYTES,
    ForkServerPing,
    ForkServerPong,
    StartWorker,
    WorkerEnded,
    WorkerNotStarted,
    WorkerStarted,
    spawner_command,
)
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.worker_timeout import run_delay_seconds
from houston_shared.backoff import Backoff
from houston_shared.faults import point

FIRST_ANSWER_SECONDS = 30.0
"""How long one may be silent until its first word: it imports what workers need, in a second."""
FORK_SERVER_SILENT_SECONDS = 10.0
"""How long it may be silent after that: a request takes milliseconds."""
PING_SECONDS = 2.0
"""Between an answer and the next question."""
LONGEST_ROUND_SECONDS = 6.0
"""What one look counts of a silence at most: a daemon that was stopped itself heard nobody."""
FAILED_START_SECONDS = 60.0
"""After a worker that could not be started: the machine has no room for one."""
STEADY_SECONDS = 60.0
"""A fork server that lived this long ended by accident: the next one starts at once."""


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker ended because its fork server did, or could not be forked: no fault of its own."""

    rollout: str
    lease: int
    delay: float
    """Seconds after which workers may be asked for again."""


_ForkServerMessage = WorkerStarted | WorkerNotStarted | WorkerEnded | ForkServerPong


class WorkerSpawner:
    """The line to the fork server; `WorkerStarted`, `WorkerEnded` and `WorkerLost` arrive as events
    of the inbox."""

    module = FORK_SERVER
    """What the fork server runs."""
    title = "fork server"
    """What the status calls it."""
    leave_seconds = 0.0
    """How long it may take to leave when the line is closed, before it is killed."""

    def __init__(
        self,
        inbox: SupervisorInbox,
        preload: str,
        log: Path,
        patience: float = FORK_SERVER_SILENT_SECONDS,
    ) -> None:
        """preload: module that the fork server imports before it forks anything; log: its output.

        patience: seconds that it may be silent.
        """
        self._inbox = inbox
        self._preload = preload
        self._log = log
        self.restarts = 0
        """Fork servers that ended unasked since the daemon's start."""
        self._backoff = Backoff()
        """Counts those in a row that did not live for STEADY_SECONDS."""
        self._last_words = ""
        """What the last one that ended wrote last."""
        self._started_at = 0.0
        self._patience = patience
        self._limit = FIRST_ANSWER_SECONDS
        """`patience`, once it has said something."""
        self._checked = 0.0
        self._ping_at = 0.0
        self._pinged = False
        """Whether it was asked and has said nothing since."""
        self._silent = 0.0
        """For how many seconds."""
        self._run_delay = 0.0
        """Seconds that it had waited for a processor when it was asked."""
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._running: dict[tuple[str, int], StartWorker] = {}

    def start_worker(self, request: StartWorker, line: socket.socket | None = None) -> None:
        """Start a worker. Raises OSError when the fork server cannot be started.

        line: the worker's end of a line to the supervisor, which stays open here.
        """
        self.ensure_running()
        self._running[request.rollout, request.lease] = request
        self._send(request, line)

    def ensure_running(self) -> None:
        """Start the fork server where there is none. Raises OSError when it cannot be."""
        if self._line is None:
            self._start()

    @property
    def pids(self) -> dict[str, int]:
        """The fork server's process id, by whose log it writes."""
        return {FORK_SERVER_LOG: self._process.pid} if self._process else {}

    def check_alive(self, now: float) -> None:
        """Ask the fork server whether it is there; kill one that has been silent for too long.

        now: monotonic seconds. Its end is heard like any other.
        """
        elapsed, self._checked = min(LONGEST_ROUND_SECONDS, now - self._checked), now
        if self._process is None:
            return
        pid = self._process.pid
        if not self._pinged:
            # Not in every round: the answer wakes the loop, which would then never rest.
            if now >= self._ping_at:
                self._ping_at = now + PING_SECONDS
                self._pinged, self._silent, self._run_delay = True, 0.0, run_delay_seconds(pid)
                self._send(ForkServerPing())
            return
        self._silent += elapsed
        if self._silent - (run_delay_seconds(pid) - self._run_delay) > self._limit:
            LOGGER.error("the fork server has been silent for %.0f s: it is killed", self._silent)
            self._pinged = False
            self._process.kill()

    def _send(self, message: msgspec.Struct, line: socket.socket | None = None) -> None:
        assert self._line is not None
        descriptors = [line.fileno()] if line else []
        try:
            socket.send_fds(self._line, [msgspec.json.encode(message)], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            LOGGER.debug("the fork server has ended; its end is heard next")

    def troubles(self, now: float) -> dict[str, str]:
        """A fork server that is silent, or keeps ending, for the status."""
        if self._silent > self._patience / 2:
            words = (
                f"silent for {self._silent:.0f} s; killed after {self._limit:g} s, with its workers"
            )
            return {self.title: words}
        losses = self._backoff.failures
        if losses < 2:
            return {}
        wait = self._backoff.seconds_left(now)
        words = self._last_words
        then = f"again in {wait:.0f} s" if wait else "runs again"
        return {self.title: f"ended {losses} times in a row; {then}; last: {words}"}

    def close(self) -> None:
        """End the fork server and with it every worker. Idempotent."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self.leave_seconds)
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = spawner_command(self.module, theirs.fileno(), self._preload, str(self._log))
        try:
            point("supervisor.fork_server.before")
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        point("supervisor.fork_server.after")
        self._started_at = time.monotonic()
        self._limit, self._pinged, self._silent = FIRST_ANSWER_SECONDS, False, 0.0
        self._line = ours
        self._inbox.listen(ours, self._receive)

    def _receive(self) -> list[object] | None:
        """What the fork server said; None when it has ended."""
        line = self._line
        if line is None:
            return None
        try:
            data = line.recv(MESSAGE_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            self._handle_loss()
            return None
        self._limit, self._pinged, self._silent = self._patience, False, 0.0
        return self._take(data)

    def _take(self, data: bytes) -> list[object]:
        """The events of one message."""
        message = msgspec.json.decode(data, type=_ForkServerMessage)
        if isinstance(message, ForkServerPong):
            return []
        if not isinstance(message, WorkerStarted):
            self._running.pop((message.rollout, message.lease), None)
        if isinstance(message, WorkerNotStarted):
            LOGGER.error("worker of %s could not be forked: %s", message.rollout, message.reason)
            return [WorkerLost(message.rollout, message.lease, FAILED_START_SECONDS)]
        return [message]

    def _handle_loss(self) -> None:
        """The fork server has ended: so have its workers, by the kernel's hand."""
        point("supervisor.fork_server.lost")
        self.close()
        now = time.monotonic()
        self.restarts += 1
        delay = self._backoff.fail(now, first=now - self._started_at > STEADY_SECONDS)
        words = self._last_words = read_last_line(self._log) or "it wrote nothing"
        LOGGER.error("the fork server has ended, with %s workers: %s", len(self._running), words)
        for rollout, lease in self._running:
            self._inbox.put(WorkerLost(rollout, lease, delay))
        self._running.clear()
