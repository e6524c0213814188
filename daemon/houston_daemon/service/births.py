"""Workers as the supervisor starts them: asks the nursery, hears of starts and ends.

The nursery is started with the first worker, and again when it was killed; its workers have ended
with it then, and are reported as lost. One that does not answer is killed. One that keeps ending is
waited for longer and longer. Everything here belongs to the supervisor's main thread.
"""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.service.inbox import Inbox
from houston_daemon.service.log import LOGGER, last_line
from houston_daemon.service.logs import NURSERY
from houston_daemon.service.nursery import MESSAGE_BYTES, Birth, Born, Died
from houston_shared.faults import point

ROOM = "x" * 1024
"""Place for the command line that a worker shows in `ps`."""
ANSWER_SECONDS = 30.0
"""A birth takes milliseconds, the first one a second or two."""
STEADY_SECONDS = 60.0
"""A nursery that lived this long ended by accident: the next one starts at once."""
LONGEST_DELAY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker ended because its nursery did."""

    rollout: str
    lease: int
    delay: float
    """Seconds after which workers may be asked for again."""


class Births:
    """The line to the nursery; `Born`, `Died` and `Lost` arrive as events of the inbox."""

    def __init__(self, inbox: Inbox, preload: str, log: Path) -> None:
        """preload: module that the nursery imports before it forks anything; log: its output."""
        self._inbox = inbox
        self._preload = preload
        self._log = log
        self.restarts = 0
        """Nurseries that ended unasked since the daemon's start."""
        self._losses = 0
        """How many of them in a row did not live for STEADY_SECONDS."""
        self._began = 0.0
        self._not_before = 0.0
        self._asked: dict[tuple[str, int], float] = {}
        """When births were asked for that are not answered yet."""
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._open: dict[tuple[str, int], Birth] = {}

    def ask(self, birth: Birth) -> None:
        """Start a worker. Raises OSError when the nursery cannot be started."""
        if self._line is None:
            self._start()
        self._open[birth.rollout, birth.lease] = birth
        self._asked[birth.rollout, birth.lease] = time.monotonic()
        assert self._line is not None
        try:
            self._line.send(msgspec.json.encode(birth))
        except (BrokenPipeError, ConnectionResetError):
            LOGGER.debug("the nursery has ended; its end is heard next")

    @property
    def pids(self) -> dict[str, int]:
        """The nursery's process id, by whose log it writes."""
        return {NURSERY: self._process.pid} if self._process else {}

    def look(self, now: float) -> None:
        """Kill a nursery that has not answered for long (stopped, or hung): its end is heard."""
        oldest = min(self._asked.values(), default=now)
        if self._process is not None and now - oldest > ANSWER_SECONDS:
            LOGGER.error("the nursery has not answered for %.0f s: it is killed", now - oldest)
            self._asked.clear()
            self._process.kill()

    def troubles(self, now: float) -> dict[str, str]:
        """A nursery that keeps ending, for the status."""
        if self._losses < 2:
            return {}
        wait = max(0.0, self._not_before - now)
        said = last_line(self._log) or "it wrote nothing"
        then = f"again in {wait:.0f} s" if wait else "runs again"
        return {"nursery of workers": f"ended {self._losses} times in a row; {then}; last: {said}"}

    def close(self) -> None:
        """End the nursery and with it every worker. Idempotent."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "houston_daemon.service.nursery"]
        command += [str(os.getpid()), str(theirs.fileno()), self._preload, str(self._log), ROOM]
        try:
            point("supervisor.nursery.before")
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
        point("supervisor.nursery.after")
        self._began = time.monotonic()
        self._line = ours
        self._inbox.listen(ours, self._hear)

    def _hear(self) -> list[object] | None:
        """What the nursery said; None when it has ended."""
        line = self._line
        if line is None:
            return None
        try:
            said = line.recv(MESSAGE_BYTES)
        except ConnectionResetError:
            said = b""
        if not said:
            self._lost()
            return None
        message = msgspec.json.decode(said, type=Born | Died)
        self._asked.pop((message.rollout, message.lease), None)
        if isinstance(message, Died):
            self._open.pop((message.rollout, message.lease), None)
        return [message]

    def _lost(self) -> None:
        """The nursery has ended: so have its workers, by the kernel's hand."""
        point("supervisor.nursery.lost")
        self.close()
        now = time.monotonic()
        self.restarts += 1
        self._losses = 1 if now - self._began > STEADY_SECONDS else self._losses + 1
        delay = min(LONGEST_DELAY_SECONDS, 2.0 ** (self._losses - 1))
        self._not_before = now + delay
        said = last_line(self._log) or "it wrote nothing"
        LOGGER.error("the nursery has ended, with %s workers: %s", len(self._open), said)
        for rollout, lease in self._open:
            self._inbox.put(Lost(rollout, lease, delay))
        self._open.clear()
        self._asked.clear()
