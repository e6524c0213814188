"""The process that frees hosts, as the recorder holds it: given orders, heard, never waited for.

Holds orders and reports, and `HostCleanupProcess`. An order whose process died is reported as not
done. All calls belong to the recorder's thread. What is freed is decided by `host_cleanup_child`
and `hosts`.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from houston_daemon.hosts.ssh.remote_part import RemotePart
from houston_shared.home import Home

LOGGER = logging.getLogger("houston.recorder")
CUT_SHORT_REASON = "the process that freed it ended; ask again"


class CleanupOrder(msgspec.Struct, frozen=True):
    """One rollout to free."""

    root: str
    """The host's root, as the rollout was started with."""
    rollout: str
    snapshots: bool
    """Whether its snapshots go, too."""
    elsewhere: tuple[RemotePart, ...] = ()
    """Its parts of other machines."""


class CleanupReport(msgspec.Struct, frozen=True):
    """What became of one order."""

    rollout: str
    bytes: int
    """That were freed."""
    left: str = ""
    """Why something is left that should have gone; empty when nothing is."""


class HostCleanupProcess:
    """`start` with orders when it `is_idle`, then `take_reports` until it is again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._open: dict[str, CleanupOrder] = {}
        """Orders that were not reported yet, by rollout."""
        self._rest = b""

    @property
    def is_idle(self) -> bool:
        """Whether it can begin."""
        return self._process is None

    def start(self, orders: Sequence[CleanupOrder]) -> None:
        """Start a process for these orders; where that cannot be, `take_reports` says so."""
        self._open = {order.rollout: order for order in orders}
        command = [sys.executable, "-m", "houston_daemon.maintenance.host_cleanup_child"]
        command += [str(os.getpid()), str(self._home.path)]
        try:
            with os.fdopen(os.memfd_create("orders"), "w+b") as stdin:  # a pipe would make it wait
                stdin.write(msgspec.json.encode(list(orders)))
                stdin.seek(0)
                process = subprocess.Popen(
                    command, stdin=stdin, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
                )
        except OSError as problem:
            LOGGER.error("hosts cannot be freed: %s", problem)
            return
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        self._process, self._rest = process, b""

    def take_reports(self) -> list[CleanupReport]:
        """What was freed since the last call; with the end, also what was not."""
        reports: list[CleanupReport] = []
        if self._process is not None:
            reports, ended = self._read(self._process)
            if not ended:
                return reports
            self._close(self._process)
        for rollout in self._open:
            reports.append(CleanupReport(rollout, 0, CUT_SHORT_REASON))
        self._open = {}
        return reports

    def stop(self) -> None:
        """End it; what it had not freed can be asked for again."""
        if self._process is not None:
            self._process.kill()
            self._close(self._process)

    def _read(self, process: "subprocess.Popen[bytes]") -> tuple[list[CleanupReport], bool]:
        assert process.stdout
        try:
            data = os.read(process.stdout.fileno(), 65_536)
        except BlockingIOError:
            return [], False
        *lines, self._rest = (self._rest + data).split(b"\n")
        reports = [msgspec.json.decode(line, type=CleanupReport) for line in lines]
        for report in reports:
            self._open.pop(report.rollout, None)
        return reports, not data

    def _close(self, process: "subprocess.Popen[bytes]") -> None:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
