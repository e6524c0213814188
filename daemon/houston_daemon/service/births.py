"""Workers as the supervisor starts them: asks the nursery, hears of starts and ends.

The nursery is started with the first worker, and again when it was killed; its workers have ended
with it then, and are reported so. Everything here belongs to the supervisor's main thread.
"""

import os
import signal
import socket
import subprocess
import sys

import msgspec

from houston_daemon.service.inbox import Inbox
from houston_daemon.service.log import LOGGER
from houston_daemon.service.nursery import MESSAGE_BYTES, Birth, Born, Died
from houston_shared.faults import point

ROOM = "x" * 1024
"""Place for the command line that a worker shows in `ps`."""


class Births:
    """The line to the nursery; `Born` and `Died` arrive as events of the inbox."""

    def __init__(self, inbox: Inbox, preload: str) -> None:
        """preload: module that the nursery imports before it forks anything."""
        self._inbox = inbox
        self._preload = preload
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._open: dict[tuple[str, int], Birth] = {}

    def ask(self, birth: Birth) -> None:
        """Start a worker. Raises OSError when the nursery cannot be started."""
        if self._line is None:
            self._start()
        self._open[birth.rollout, birth.lease] = birth
        assert self._line is not None
        try:
            self._line.send(msgspec.json.encode(birth))
        except (BrokenPipeError, ConnectionResetError):
            LOGGER.debug("the nursery has ended; its end is heard next")

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
        command += [str(os.getpid()), str(theirs.fileno()), self._preload, ROOM]
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
        if isinstance(message, Died):
            self._open.pop((message.rollout, message.lease), None)
        return [message]

    def _lost(self) -> None:
        """The nursery has ended: so have its workers, by the kernel's hand."""
        point("supervisor.nursery.lost")
        self.close()
        LOGGER.error("the nursery has ended, with %s workers", len(self._open))
        for rollout, lease in self._open:
            self._inbox.put(Died(rollout, lease, -int(signal.SIGKILL)))
        self._open.clear()
