"""The files that parse actions read, on the machine where the workspace is.

What is asked of a machine stands in one protocol, so that a workspace elsewhere is read there.
"""

import asyncio
import posixpath
from typing import Protocol

from houston_daemon.environments.workstation.files.confine import Confined
from houston_daemon.environments.workstation.parse import sources
from houston_daemon.environments.workstation.parse.converter import Converted, Converter, Kind
from houston_daemon.environments.workstation.parse.frames import Frames, frames
from houston_daemon.hosts.protocol import Host


class Documents(Protocol):
    """Files of one workspace that are no text. Paths are the agent's.

    Each call raises PathRefused for a path that is not reached, Unreadable for what cannot be read.
    """

    async def check_target(self, path: str) -> None:
        """Refuse a place that cannot be written."""
        ...

    async def convert(self, kind: Kind, path: str) -> Converted:
        """A document as Markdown."""
        ...

    async def content(self, path: str, most: int) -> bytes:
        """All bytes of a file of at most `most`."""
        ...

    async def frames(self, path: str, interval: int) -> Frames:
        """Every `interval`-th frame of a video."""
        ...


class DocumentsHere:
    """Of a workspace on this machine; see `Documents`."""

    def __init__(self, host: Host, converter: Converter) -> None:
        self._host = host
        self._confined = Confined(host.workspace)
        self._converter = converter

    async def check_target(self, path: str) -> None:
        """Refuse a place that cannot be written."""
        await asyncio.to_thread(sources.check_target, self._confined, path)

    async def convert(self, kind: Kind, path: str) -> Converted:
        """A document as Markdown; what it includes is looked for beside it."""
        place = await asyncio.to_thread(sources.located, self._confined, path)
        inside = posixpath.join(self._host.inside, place)
        return await self._converter.convert(kind, inside, cwd=posixpath.dirname(inside))

    async def content(self, path: str, most: int) -> bytes:
        """All bytes of a file of at most `most`."""
        return await asyncio.to_thread(sources.content, self._confined, path, most)

    async def frames(self, path: str, interval: int) -> Frames:
        """Every `interval`-th frame of a video."""
        place = await asyncio.to_thread(sources.located, self._confined, path, sources.MOST_VIDEO)
        return await frames(self._host, posixpath.join(self._host.inside, place), interval)
