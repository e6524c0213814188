"""The recorder's side of the search indexer: starts it, announces new events, restarts it.

The process ends with the recorder, however that ends. Only `stop` waits for it. All calls belong to
the recorder's thread. `search_indexer` does the indexing.
"""

import logging
import os
import subprocess
import sys
import time

import msgspec

from houston_daemon.recorder.search_indexer import GATHER_SECONDS, RETRY_SECONDS, IndexReport
from houston_shared.home import Home

LOGGER = logging.getLogger("houston.search")
MAX_DELAY_SECONDS = 60.0
STOP_SECONDS = 5.0
"""How long the page in hand may take at a stop; then the process is killed: no page is lost."""


class SearchIndexerProcess:
    """`poll` it often, `notify` it after commits."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        """The beginning of a report whose end has not come."""
        self._due = time.monotonic() + GATHER_SECONDS
        """When it is started: a short wait, so that a start is not slowed by it."""
        self._delay = RETRY_SECONDS
        """Until the next start, should this one end by itself; twice as long each time."""
        self._started_at = time.monotonic()
        self.seq = 0
        """Newest event that was looked at; read by the status."""
        self.problem = ""
        """Why the index lags; empty when it does not."""

    def notify(self) -> None:
        """There are new events."""
        if self._process is None:
            return
        assert self._process.stdin
        try:
            os.write(self._process.stdin.fileno(), b"\0")
        except (BlockingIOError, BrokenPipeError):
            return  # it has news enough, or has ended: `poll` finds out

    def poll(self) -> None:
        """Start it when it is due, hear what it says, notice its end."""
        if self._process is not None:
            self._read_reports(self._process)
        elif time.monotonic() >= self._due:
            self._start()

    def stop(self) -> None:
        """End it after its page; waits for it. Idempotent."""
        process, self._process = self._process, None
        self._due = float("inf")
        if process is None:
            return
        assert process.stdin
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            LOGGER.warning("the indexer did not end by itself")
            process.kill()
            process.wait()
        self._close(process)

    def _start(self) -> None:
        command = [sys.executable, "-m", "houston_daemon.recorder.search_indexer"]
        command += [str(os.getpid()), str(self._home.path)]
        self._started_at = time.monotonic()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # a terminal's Ctrl-C is for the daemon
            )
        except OSError as problem:
            self._schedule_restart(f"the indexer cannot be started: {problem.strerror}")
            return
        assert process.stdin
        assert process.stdout
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        self._process, self._rest = process, b""
        self.notify()  # whatever was committed before it listened

    def _read_reports(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout
        try:
            data = os.read(process.stdout.fileno(), 65_536)
        except BlockingIOError:
            return
        if not data:
            self._process = None
            process.kill()  # it closed its end: it is ending, or has ended
            code = process.wait()
            self._close(process)
            self._schedule_restart(f"the indexer ended by itself ({code})")
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            report = msgspec.json.decode(line, type=IndexReport)
            self.seq, self.problem = report.seq, report.problem
            if report.note:
                LOGGER.warning("%s", report.note)

    def _schedule_restart(self, problem: str) -> None:
        if time.monotonic() - self._started_at > MAX_DELAY_SECONDS:
            self._delay = RETRY_SECONDS
        LOGGER.warning("%s; search lags, again in %g s", problem, self._delay)
        self.problem = problem
        self._due = time.monotonic() + self._delay
        self._delay = min(MAX_DELAY_SECONDS, 2 * self._delay)

    def _close(self, process: "subprocess.Popen[bytes]") -> None:
        for end in (process.stdin, process.stdout):
            if end is not None:
                end.close()
