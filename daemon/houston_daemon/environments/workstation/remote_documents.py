"""Files that parse actions read on a host over SSH: read and converted there, by the same code.

The far machine needs the packages that convert (`houston-agents[envs]`); it says so where it lacks
them. Both ends of the conversation stand in this module.
"""

import asyncio
from typing import Any, TypeVar

import msgspec

from houston_daemon.environments.workstation.confined_paths import PathRefused
from houston_daemon.environments.workstation.document_converter import (
    Converted,
    Converter,
    Kind,
    Unreadable,
)
from houston_daemon.environments.workstation.parse_sources import Frames, LocalDocuments
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.ssh.remote_server import RemoteService
from houston_daemon.hosts.ssh.ssh_host import SshHost

SERVICE = "documents"
T = TypeVar("T")


class _CheckTarget(msgspec.Struct, frozen=True, tag=True):
    path: str


class _Convert(msgspec.Struct, frozen=True, tag=True):
    kind: Kind
    path: str


class _Content(msgspec.Struct, frozen=True, tag=True):
    path: str
    most: int


class _Frames(msgspec.Struct, frozen=True, tag=True):
    path: str
    interval: int


_Asks = _CheckTarget | _Convert | _Content | _Frames


class _Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: a value, or why not."""

    value: msgspec.Raw
    refused: str = ""
    unreadable: str = ""


class RemoteDocuments:
    """The same as `LocalDocuments` for a workspace on an SSH host. Raises HostAway, too."""

    def __init__(self, host: SshHost) -> None:
        self._link = host.link

    async def check_target(self, path: str) -> None:
        """Refuse a place that cannot be written."""
        await self._ask(_CheckTarget(path), type(None))

    async def convert(self, kind: Kind, path: str) -> Converted:
        """A document as Markdown."""
        return await self._ask(_Convert(kind, path), Converted)

    async def content(self, path: str, max_bytes: int) -> bytes:
        """All bytes of a file of at most `max_bytes`."""
        return await self._ask(_Content(path, max_bytes), bytes)

    async def frames(self, path: str, interval: int) -> Frames:
        """Every `interval`-th frame of a video."""
        return await self._ask(_Frames(path, interval), Frames)

    async def _ask(self, ask: _Asks, kind: type[T]) -> T:
        answer = await self._link.other(SERVICE, ask, _Done, idempotent=True)
        if answer.refused:
            raise PathRefused(answer.refused)
        if answer.unreadable:
            raise Unreadable(answer.unreadable)
        return msgspec.msgpack.decode(answer.value, type=kind)


def serve(host: LocalHost) -> RemoteService:
    """The far end: documents of the workspace of `host`."""
    documents = LocalDocuments(host, Converter(host))

    async def answer(_: LocalHost, body: msgspec.Raw, back: asyncio.Event) -> _Done:
        ask: _Asks = msgspec.msgpack.decode(body, type=_Asks)
        doing = asyncio.ensure_future(_do(documents, ask))
        taken_back = asyncio.ensure_future(back.wait())
        either: set[asyncio.Future[Any]] = {doing, taken_back}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                return _Done(value=_raw(None), unreadable="It was called off.")
            return doing.result()
        finally:
            doing.cancel()
            taken_back.cancel()

    return answer


async def _do(documents: LocalDocuments, ask: _Asks) -> _Done:
    value: Any = None
    try:
        match ask:
            case _CheckTarget():
                await documents.check_target(ask.path)
            case _Convert():
                value = await documents.convert(ask.kind, ask.path)
            case _Content():
                value = await documents.content(ask.path, ask.most)
            case _Frames():
                value = await documents.frames(ask.path, ask.interval)
    except PathRefused as refused:
        return _Done(value=_raw(None), refused=str(refused))
    except Unreadable as unreadable:
        return _Done(value=_raw(None), unreadable=str(unreadable))
    return _Done(value=_raw(value))


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))
