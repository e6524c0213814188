"""Ends the daemon by force: at a second signal, or when a shutdown takes longer than it may.

A separate thread receives signals through the interpreter's wake-up descriptor, which is written
even while the main thread waits for a lock, a disk or the recorder. So nothing in the daemon can
hang forever after it was told to end. This module also works out how long a shutdown may take
(`drain_seconds`). Everything acked is on disk; the next start continues from there.
"""

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable

from houston_shared.config import LoadedConfiguration

EXIT_CUT_SHORT = 1
"""Exit code of a daemon that did not come to its own end."""
SECOND_SIGNAL_SECONDS = 0.8
"""After a second signal the process is gone within this time, whatever hangs."""
STOP_RESERVE_SECONDS = 1.2
"""Of the time for leaving: for `daemon stop`, which ends what a daemon cut short has left."""
EXIT_MARGIN_SECONDS = 0.5
"""Between the moment by which a process means to be gone and the one at which it is cut short."""
MIN_SHUTDOWN_SECONDS = 4.0
"""Time for leaving where less is configured: store and engines need some."""
TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ForceExit:
    """Hears the signals of one process. `start` belongs to the main thread, the rest to any."""

    def __init__(self, tell: Callable[[signal.Signals], None], patience: float) -> None:
        """tell: hears of every signal, from this thread; patience: seconds until it is cut short.

        The first TERM or INT begins to count, whether or not anybody acts on it.
        """
        self._tell = tell
        self._patience = patience
        self._ending = False
        self._guard = threading.Lock()
        self._end: float | None = None
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()

    def start(self, numbers: Iterable[signal.Signals]) -> None:
        """From now on these signals come here, and none of them ends the process by itself."""
        self._wakeup_writer.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_writer.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)  # heard by the descriptor
        threading.Thread(target=self._run, name="houston-signals", daemon=True).start()

    def begin_shutdown(self) -> float:
        """The process has begun to leave: from now on a signal cuts it short.

        Returns the monotonic time by which it should be gone, counted from the first signal.
        """
        with self._guard:
            self._ending = True
            end = self._limit(self._patience)
        with contextlib.suppress(BlockingIOError):  # a full buffer wakes it, too
            self._wakeup_writer.send(b"\0")  # the thread waits with the new limit
        return end - EXIT_MARGIN_SECONDS

    def end_soon(self) -> None:
        """Be gone within SECOND_SIGNAL_SECONDS."""
        with self._guard:
            self._limit(SECOND_SIGNAL_SECONDS)

    def _limit(self, seconds: float) -> float:
        """End after so many seconds, if not sooner already; returns when."""
        end = time.monotonic() + seconds
        self._end = end if self._end is None else min(self._end, end)
        return self._end

    def _run(self) -> None:
        while True:
            end = self._end
            self._wakeup_reader.settimeout(
                None if end is None else max(0.001, end - time.monotonic())
            )
            try:
                signals = self._wakeup_reader.recv(64)
            except (TimeoutError, BlockingIOError):
                signals = b""
            for byte in signals:
                if byte:
                    self._handle_signal(signal.Signals(byte))
            if self._end is not None and time.monotonic() >= self._end:
                _dump_stacks_and_exit()

    def _handle_signal(self, number: signal.Signals) -> None:
        if number in TERMINATION_SIGNALS:
            with self._guard:
                first, self._ending = not self._ending, True
                self._limit(self._patience if first else SECOND_SIGNAL_SECONDS)
        self._tell(number)


def shutdown_seconds(loaded: LoadedConfiguration) -> float:
    """How long a stop may take in all, whatever hangs: from the first signal, engines included."""
    return max(MIN_SHUTDOWN_SECONDS, loaded.config.daemon.drain_seconds)


def force_exit_seconds(loaded: LoadedConfiguration) -> float:
    """After the first signal the daemon is cut short within this time."""
    return shutdown_seconds(loaded) - STOP_RESERVE_SECONDS


def _dump_stacks_and_exit() -> None:
    """Say where every thread stands, and end. Past the log: a thread may hang in its lock."""
    note = "it did not end in time and is cut short; the next start continues from here\n"
    try:
        os.write(2, note.encode())
        faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)
    finally:
        os._exit(EXIT_CUT_SHORT)
