"""What each step changed in the workspace, for the journal: the same when a step is reported twice.

`mcp-steps.json` on the host keeps the last report. Without a terminal there is nothing else to
report, so this is smaller than the workstation's closing.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from houston_daemon.environments.call_handling import recorded_change
from houston_daemon.environments.environment_protocol import Closing
from houston_daemon.environments.rollout_state import load_state, save_state
from houston_daemon.hosts.host_protocol import RolloutHost
from houston_shared.records import FileChange

log = logging.getLogger(__name__)


class ClosedSteps(msgspec.Struct, frozen=True):
    """Everything in the file."""

    commit: str = ""
    """The snapshot that was told last."""
    step: int = 0
    """The step that it closed; 0 once something has run after it."""
    files: tuple[FileChange, ...] = ()
    more: int = 0
    notes: tuple[str, ...] = ()
    """What the agent is told with the step; while `step` is 0, with the next one."""


class StepChanges:
    """The closed steps of one rollout."""

    def __init__(
        self, host: RolloutHost, file: Path, arrival: Callable[[], Awaitable[tuple[str, ...]]]
    ) -> None:
        """arrival: what the agent is told with its first observation, once the world is made."""
        self._host = host
        self._file = file
        self._arrival = arrival
        self._closed_steps = ClosedSteps()

    async def open(self) -> None:
        """Find what was told, or take the workspace as it is given. Raises HoustonError."""
        if (kept_steps := load_state(self._file, ClosedSteps)) is not None:
            self._closed_steps = kept_steps
            return
        snapshot = await self._host.snapshots.take("start", mark=True)
        self._save_closed(ClosedSteps(snapshot.commit, notes=await self._arrival()))

    def run(self) -> None:
        """Note that a call may change the workspace. A full disk does not stop it."""
        if not self._closed_steps.step:
            return
        opened = msgspec.structs.replace(self._closed_steps, step=0, files=(), more=0, notes=())
        try:
            self._save_closed(opened)
        except OSError as problem:
            log.warning("the mark of an open step is not saved: %s", problem)
            self._closed_steps = opened

    async def mark(self) -> str:
        """A snapshot within a step, large files too; its commit."""
        since = self._closed_steps.commit
        return (await self._host.snapshots.take("evaluation", mark=True, since=since)).commit

    async def close(self, step: int) -> Closing:
        """Take the step's snapshot. Raises HoustonError."""
        if self._closed_steps.step != step:
            since = self._closed_steps.commit
            snapshot = await self._host.snapshots.take(f"step {step}", since=since)
            files = tuple(map(recorded_change, snapshot.files))
            notes = () if self._closed_steps.step else self._closed_steps.notes
            self._save_closed(ClosedSteps(snapshot.commit, step, files, snapshot.more, notes))
        closed = self._closed_steps
        return Closing(
            snapshot=closed.commit, files=closed.files, more_files=closed.more, notes=closed.notes
        )

    def _save_closed(self, closed: ClosedSteps) -> None:
        save_state(self._file, closed)
        self._closed_steps = closed
