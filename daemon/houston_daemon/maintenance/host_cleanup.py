"""What ended rollouts have left on hosts, and the process that cleans it up.

`has_leftovers` checks; orders go to a child (`start_cleanup`), so neither recorder nor supervisor
waits. The recorder reads its child's reports through `HostCleanupProcess`: an order whose process
died is reported as not done. `hosts.rollout_cleanup` decides what is removed.
"""

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_daemon.hosts import folder_lock
from houston_daemon.hosts.host_protocol import CleanupExtent
from houston_daemon.hosts.limit_setup import limits_note
from houston_daemon.hosts.ssh.remote_part import RemotePart
from houston_shared.home import Home
from houston_shared.terminal_log_files import rollout_folder, socket_note, terminals_folder

LOGGER = logging.getLogger("houston.recorder")
CUT_SHORT_REASON = "the process that freed it ended; ask again"


class CleanupOrder(msgspec.Struct, frozen=True):
    """One rollout to clean up after."""

    root: str
    """The host's root, as the rollout was started with."""
    rollout: str
    extent: CleanupExtent
    """How much goes."""
    elsewhere: tuple[RemotePart, ...] = ()
    """Its parts of other machines."""


class CleanupReport(msgspec.Struct, frozen=True):
    """What became of one order."""

    rollout: str
    bytes: int
    """That were freed."""
    left: str = ""
    """Why something is left that should have gone; empty when nothing is."""


def has_leftovers(root: Path, rollout: str, home: str = "") -> bool:
    """Whether something of an ended rollout may still run on the host under `root`.

    home: the rollout's; what another home drives now is left alone. A sandbox outlives its tmux
    server, so checking the server is not enough: the note of its groups counts, too.
    """
    folder = rollout_folder(root, rollout)
    if holder := folder_lock.read_holder(folder):
        return holder == home or not (home and folder_lock.is_claimed_elsewhere(folder, home))
    return limits_note(root, rollout).exists() or _has_tmux_server(terminals_folder(root, rollout))


def _has_tmux_server(folder: Path) -> bool:
    note = socket_note(folder)
    try:
        place = Path(note.read_text(encoding="utf-8").strip())
        with socket.socket(socket.AF_UNIX) as trial:
            trial.connect(str(place))
    except OSError:
        return False
    return True


def start_cleanup(
    home: str, orders: Sequence[CleanupOrder], stdout: int, parent: int = 0
) -> "subprocess.Popen[bytes]":
    """Start a process for these orders, which prints a `CleanupReport` a line. Raises OSError.

    home: whose rollouts they are; empty where nobody asks.
    parent: pid of whom it ends with; 0 to let it come to its own end.
    """
    command = [sys.executable, "-m", "houston_daemon.maintenance.host_cleanup_child"]
    with os.fdopen(os.memfd_create("orders"), "w+b") as stdin:  # a pipe would make the caller wait
        stdin.write(msgspec.json.encode(list(orders)))
        stdin.seek(0)
        return subprocess.Popen(
            [*command, str(parent), home],
            stdin=stdin,
            stdout=stdout,
            bufsize=0,
            start_new_session=True,
        )


class HostCleanupProcess:
    """`start` with orders when it `is_idle`, then `take_reports` until it is again.

    All calls belong to the recorder's thread.
    """

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
        try:
            process = start_cleanup(str(self._home.path), orders, subprocess.PIPE, os.getpid())
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
