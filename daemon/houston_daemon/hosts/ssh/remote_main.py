"""The process that Houston starts on a machine over SSH: it reads requests, runs and answers them.

It lives as long as its standard input: when the connection is cut it ends, and leaves terminals and
their processes alone. Only answers go to its standard output. After a minute of silence (the near
end pings) it treats the connection as dead.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import Any

import msgspec

from houston_daemon.hosts.ssh import ssh_protocol
from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_daemon.hosts.ssh.remote_server import RemoteServer
from houston_shared.errors import HoustonError

log = logging.getLogger(__name__)

_SILENT_SECONDS = 60.0
_ENDING_SECONDS = 5.0
_LAST_SECONDS = 60
"""Within which it is gone when the near end is."""


async def serve_connection(serving: RemoteServer) -> None:
    """Serve one near end until it goes."""
    reader, writer = await _open_pipes()
    writer.write(ssh_protocol.GREETING)
    ending = asyncio.current_task()
    assert ending is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.cancel)
    far = _RequestLoop(serving, writer)
    try:
        await far.listen(reader)
    finally:
        signal.alarm(_LAST_SECONDS)  # a disk that hangs must not keep it: others come after it
        await far.end()


async def _open_pipes() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Standard input and output as streams; whatever else is printed goes to standard error."""
    loop = asyncio.get_running_loop()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader(limit=1 << 22)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, out)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


class _RequestLoop:
    """The requests under way."""

    def __init__(self, serving: RemoteServer, writer: asyncio.StreamWriter) -> None:
        self._serving = serving
        self._writer = writer
        self._cancel_events: dict[int, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Take requests until the near end has gone. Raises GarbledMessage."""
        decoder = msgspec.msgpack.Decoder(m.NearEndMessage)
        while True:
            try:
                async with asyncio.timeout(_SILENT_SECONDS):
                    body = await ssh_protocol.read_frame(reader)
            except TimeoutError:
                log.warning("the near side has said nothing for %g s", _SILENT_SECONDS)
                return
            if body is None:
                return
            message: m.NearEndMessage = decoder.decode(body)
            if isinstance(message, m.CancelRequest):
                if back := self._cancel_events.get(message.number):
                    back.set()
            else:
                self._begin(message)

    def _begin(self, request: m.Request) -> None:
        self._cancel_events[request.number] = asyncio.Event()
        task = asyncio.create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: m.Request) -> None:
        try:
            value: Any = await self._serving.answer(
                request.ask, self._cancel_events[request.number]
            )
            body = _encode_value(m.HostAnswer(request.number, msgspec.Raw(_encode_value(value))))
            data = ssh_protocol.pack_frame(body)
        except Exception as problem:  # it is the near end's to handle
            if not isinstance(problem, HoustonError | OSError):
                log.exception("%s", type(request.ask).__name__)
            nothing = msgspec.Raw(_encode_value(None))
            trouble = ssh_protocol.pack_error(problem)
            data = ssh_protocol.pack_frame(
                _encode_value(m.HostAnswer(request.number, nothing, trouble))
            )
        finally:
            del self._cancel_events[request.number]
        with contextlib.suppress(ConnectionError):  # it has gone; `listen` will see it
            self._writer.write(data)
            await self._writer.drain()

    async def end(self) -> None:
        """Call off what is under way (processes that were waited for end), and let go."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_ENDING_SECONDS)
        await self._serving.close()


def _encode_value(value: Any) -> bytes:
    """msgpack; names of files that are no UTF-8 have U+FFFD in them."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(_replace_surrogates(msgspec.to_builtins(value)))


def _replace_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {key: _replace_surrogates(member) for key, member in value.items()}
        case list() | tuple():
            return [_replace_surrogates(member) for member in value]
    return value
