"""Terminals of rollouts that ended without a worker: cancelled while paused, failed after deaths.

A worker ends its rollout's terminals itself. Where none was left to do it, the supervisor finds
what is left (a tmux server, or the note of groups and processes that a rollout's end removes) and
has a short process of its own end it: `python -m houston_daemon.service.orphaned_terminals
HOST_ROOT ROLLOUT…`, or `--there NOTE…` for other machines. A sandbox outlives its tmux server, so
the server alone would not tell. How terminals are ended is `hosts`.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.hosts import folder_lock
from houston_daemon.hosts.limit_setup import limits_note
from houston_daemon.hosts.ssh import remote_part
from houston_daemon.service.daemon_log import LOGGER
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.supervisor_queries import read_ended_rollouts
from houston_shared.faults import point
from houston_shared.terminal_log_files import rollout_folder, socket_note, terminals_folder

_REMOTE_RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class OrphanCleanupEnded:
    """The process that ended terminals is done."""


class OrphanedTerminals:
    """What is left on this host; used from the supervisor's thread only."""

    def __init__(self, database: Path, host_root: Path, inbox: SupervisorInbox) -> None:
        self._database = database
        self._root = host_root
        self._inbox = inbox
        self._newest_end = 0
        self._waiting: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: set[str] = set()
        """Rollouts of which the process ends the terminals on this host."""
        self._remote_candidates: set[str] = set()
        """Rollouts that have ended, of which something may be left on another machine."""
        self._next_remote_look = 0.0

    def update(self, live: Container[str]) -> None:
        """End terminals of rollouts that ended since the last look and have no live worker."""
        ended, self._newest_end = read_ended_rollouts(self._database, self._newest_end)
        self._waiting.update(ended)
        self._remote_candidates.update(ended)
        ready = {rollout for rollout in self._waiting if rollout not in live}
        if self._process is not None:
            return
        if not ready:
            self._end_remote(live)
            return
        home = str(self._database.parent.resolve())
        orphaned = sorted(r for r in ready if may_have_orphans(self._root, r, home))
        try:
            if orphaned:
                self._start(orphaned)
        except OSError as problem:  # no more processes or descriptors: tried again
            LOGGER.warning("terminals of %s are not ended yet: %s", ", ".join(orphaned), problem)
            return
        self._waiting -= ready

    def may_run(self, rollout: str) -> bool:
        """Whether processes of a rollout that ended may still run, here or on another machine."""
        on_this_host = rollout in self._waiting or rollout in self._ending
        return on_this_host or bool(remote_part.find_leftovers(self._root, (rollout,)))

    def _end_remote(self, live: Container[str]) -> None:
        """The same on other machines; one that is away is asked again every minute."""
        now = time.monotonic()
        if not self._remote_candidates or now < self._next_remote_look:
            return
        self._next_remote_look = now + _REMOTE_RETRY_SECONDS
        over = {rollout for rollout in self._remote_candidates if rollout not in live}
        notes = remote_part.find_leftovers(self._root, over)
        self._remote_candidates -= over - {note.stem.rpartition("@")[0] for note in notes}
        if notes:
            self._start_with("--there", [str(note) for note in notes])

    def on_ended(self) -> None:
        """Take note that the process is done."""
        if self._process is not None and (code := self._process.wait()):
            LOGGER.warning("terminals could not all be ended (exit code %s)", code)
        self._process = None
        self._ending.clear()

    def _start(self, rollouts: list[str]) -> None:
        LOGGER.info("ending terminals of %s", ", ".join(rollouts))
        self._start_with(str(self._root), rollouts)
        self._ending.update(rollouts)

    def _start_with(self, first: str, others: list[str]) -> None:
        command = [sys.executable, "-m", "houston_daemon.service.orphaned_terminals"]
        point("supervisor.leftovers.before")
        self._process = subprocess.Popen(
            [*command, first, *others],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._inbox.watch(os.pidfd_open(self._process.pid), OrphanCleanupEnded())


def may_have_orphans(root: Path, rollout: str, home: str = "") -> bool:
    """Whether a rollout that ended may still have something on the host under `root`.

    home: whose rollout it is; what another home drives now is left alone.
    """
    holder = folder_lock.read_holder(rollout_folder(root, rollout))
    if holder:
        return holder == home or not home
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


async def end_terminals(root: Path, rollouts: list[str]) -> None:
    """End every terminal of these rollouts, and what runs in them."""
    from houston_daemon.hosts.rollout_folder_cleanup import end_rollout_terminals

    for rollout in rollouts:
        await end_rollout_terminals(root, rollout)


async def end_remote_terminals(notes: list[Path]) -> None:
    """End what rollouts left on other machines, of which these are the notes.

    Machines are asked at the same time, and one that is away once for all of its rollouts.
    """
    machines: dict[bytes, list[tuple[Path, remote_part.RemoteLeftover]]] = {}
    for note in notes:
        try:
            leftover = remote_part.read_leftover(note)
        except (OSError, msgspec.DecodeError) as problem:
            LOGGER.warning("%s cannot be read: %s", note, problem)
            continue
        machines.setdefault(msgspec.json.encode(leftover.settings), []).append((note, leftover))
    await asyncio.gather(*map(_end_on_machine, machines.values()))


async def _end_on_machine(leftovers: list[tuple[Path, remote_part.RemoteLeftover]]) -> None:
    from houston_daemon.hosts.ssh.ssh_host import SshHost

    for note, leftover in leftovers:
        host = SshHost(leftover.host, leftover.settings, leftover.hello, note=note)
        try:
            if await host.link.start():
                return
            await host.destroy_terminals()
        finally:
            await host.close()


if __name__ == "__main__":
    if sys.argv[1] == "--there":
        asyncio.run(end_remote_terminals([Path(note) for note in sys.argv[2:]]))
    else:
        asyncio.run(end_terminals(Path(sys.argv[1]), sys.argv[2:]))
