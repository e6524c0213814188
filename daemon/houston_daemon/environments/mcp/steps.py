"""What each step changed in the workspace, as the journal is told: the same for a step told twice.

`mcp-steps.json` on the host keeps what was told last. Without a terminal there is nothing else to
tell, so this is smaller than the workstation's closing.
"""

from pathlib import Path

import msgspec

from houston_daemon.environments.protocol import Closing
from houston_daemon.hosts.protocol import ChangedFile, Host
from houston_shared import synced_file
from houston_shared.records import FileChange
from houston_shared.secret_values import redact


class Told(msgspec.Struct, frozen=True):
    """Everything in the file."""

    commit: str = ""
    """The snapshot that was told last."""
    step: int = 0
    """The step that it closed; 0 once something has run after it."""
    files: tuple[FileChange, ...] = ()
    more: int = 0


class Steps:
    """The closed steps of one rollout."""

    def __init__(self, host: Host, file: Path) -> None:
        self._host = host
        self._file = file
        self._told = Told()

    async def open(self) -> None:
        """Find what was told, or take the workspace as it is given. Raises HoustonError."""
        if self._file.is_file():
            self._told = msgspec.json.decode(self._file.read_bytes(), type=Told)
            return
        snapshot = await self._host.snapshots.take("start", mark=True)
        self._keep(Told(snapshot.commit))

    def run(self) -> None:
        """Something is about to change the workspace."""
        if self._told.step:
            self._keep(msgspec.structs.replace(self._told, step=0, files=(), more=0))

    async def mark(self) -> str:
        """A snapshot within a step, large files too; its commit."""
        since = self._told.commit
        return (await self._host.snapshots.take("evaluation", mark=True, since=since)).commit

    async def close(self, step: int) -> Closing:
        """Take the step's snapshot. Raises HoustonError."""
        if self._told.step != step:
            since = self._told.commit
            found = await self._host.snapshots.take(f"step {step}", since=since)
            files = tuple(map(_change, found.files))
            self._keep(Told(found.commit, step, files, found.more))
        told = self._told
        return Closing(snapshot=told.commit, files=told.files, more_files=told.more)

    def _keep(self, told: Told) -> None:
        synced_file.write(self._file, msgspec.json.encode(told))
        self._told = told


def _change(file: ChangedFile) -> FileChange:
    return FileChange(
        path=redact(file.path),
        kind=file.kind,
        added=file.added,
        removed=file.removed,
        diff=redact(file.diff),
        note=redact(file.note),
    )
