"""The last words that a server wrote on its stderr, for who mends it."""

import asyncio
import os
from typing import TextIO

_KEPT = 4_000
"""Characters."""


class StderrTail:
    """A pipe that is read away as long as it is open; its end is kept."""

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe()
        self.file: TextIO = os.fdopen(write_end, "w")
        self._kept = b""
        self._transport: asyncio.ReadTransport | None = None

    async def begin(self) -> None:
        """Read from now on."""
        loop = asyncio.get_running_loop()
        reading = os.fdopen(self._read_end, "rb")
        self._transport, _ = await loop.connect_read_pipe(lambda: _Keeping(self), reading)

    def keep(self, data: bytes) -> None:
        """Take what came."""
        self._kept = (self._kept + data)[-_KEPT:]

    @property
    def words(self) -> str:
        """What was written last."""
        return self._kept.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of the pipe."""
        self.file.close()
        if self._transport is not None:
            self._transport.close()


class _Keeping(asyncio.Protocol):
    def __init__(self, tail: StderrTail) -> None:
        self._tail = tail

    def data_received(self, data: bytes) -> None:
        self._tail.keep(data)
