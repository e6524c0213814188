"""The far end of who only reads: a workspace as it was, packed, and what terminals printed.

Nothing of the rollout is changed, and whoever serves it goes on beside.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import IO, Any

from houston_daemon.hosts.snapshots.reading import bring_back
from houston_daemon.hosts.ssh import messages as m
from houston_daemon.hosts.ssh import parcels
from houston_daemon.hosts.terminals.byte_log import TerminalLog
from houston_shared import terminal_folder
from houston_shared.errors import HoustonError


class Reading:
    """One rollout's folder, for one reader."""

    def __init__(self, folder: Path) -> None:
        """folder: the rollout's own; a workspace is packed in it, where there is room for one."""
        self._folder = folder
        self._packed: IO[bytes] | None = None

    async def answer(self, ask: m.Asks) -> Any:
        """Do one thing. Raises HoustonError and OSError."""
        match ask:
            case m.Pack():
                return await asyncio.to_thread(self._pack, ask.commit)
            case m.PartOf():
                return await asyncio.to_thread(self._part, ask.at)
            case m.LogOf():
                return await asyncio.to_thread(self._log, ask)
            case m.Ping():
                return None
        raise HoustonError(f"The near side reads only, and asked for {type(ask).__name__}.")

    def close(self) -> None:
        """Give the room back that a packed workspace takes."""
        if self._packed is not None:
            self._packed.close()
            self._packed = None

    def _pack(self, commit: str) -> m.Packed:
        self.close()
        if not self._folder.is_dir():
            raise HoustonError(f"Nothing of {self._folder.name} is on that machine.")
        beside = Path(tempfile.mkdtemp(prefix="packing-", dir=self._folder))
        self._packed = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 `close` closes it
        try:
            into = beside / "workspace"
            lost = bring_back(self._folder / "shadow", commit, into, self._folder / "workspace")
            parcels.pack(into, self._packed)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        return m.Packed(size=self._packed.tell(), lost=tuple(lost))

    def _part(self, at: int) -> bytes:
        if self._packed is None:
            raise HoustonError("The near side asked for a part before anything was packed.")
        self._packed.seek(at)
        return self._packed.read(parcels.PIECE)

    def _log(self, ask: m.LogOf) -> bytes:
        folder = self._folder / "terminals" / ask.name
        if not terminal_folder.is_name(ask.name) or not folder.is_dir():
            raise HoustonError(f"No log of a terminal {ask.name!r} is on that machine.")
        return TerminalLog(folder).read(ask.start, min(ask.end, ask.start + parcels.PIECE))
