"""Runs one process to its end, with limits: time, output, a stop event.

Nothing is left behind: the process group is killed, then everything that carries this run's token
in its environment, for a process can leave its group and session, and what is in a sandbox dies a
moment after the sandbox.
It does not know what the command means.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence

from houston_daemon.hosts import processes
from houston_daemon.hosts.protocol import Finished
from houston_shared.errors import HoustonError

TOKEN = "HOUSTON_SPAWN"
"""Environment variable with the token of one run."""
_CHUNK = 1 << 16
_DRAIN_SECONDS = 2.0


async def run_to_end(
    argv: Sequence[str],
    *,
    token: str | None,
    seconds: float,
    stop: asyncio.Event | None,
    output_limit: int,
) -> Finished:
    """Start `argv` and wait for its end; `output_limit` bytes are kept of each stream.

    token: what to look for in the environment of processes to kill; None when none can be left.
    exit_code is None when `seconds` passed or `stop` was set first.
    Raises HoustonError when the program cannot be started at all.
    """
    begun = time.monotonic()
    out, err = _Stream(output_limit), _Stream(output_limit)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out.write_end,
            stderr=err.write_end,
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
    except BaseException as error:
        for stream in (out, err):
            os.close(stream.read_end)
        if not isinstance(error, OSError):  # it was called off
            raise
        raise HoustonError(
            f"{argv[0]} could not be started: {error.strerror}.", "The command did not run."
        ) from error
    finally:
        for stream in (out, err):
            os.close(stream.write_end)
    readers = asyncio.gather(out.drain(), err.drain())
    ended = False
    try:
        ended = await _wait(process, seconds, stop)
    finally:
        await _end_all(process, token)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(readers, _DRAIN_SECONDS)
    return Finished(
        exit_code=process.returncode if ended else None,
        stdout=bytes(out.kept),
        stderr=bytes(err.kept),
        seconds=time.monotonic() - begun,
        cut=out.cut or err.cut,
    )


class _Stream:
    """A pipe of our own: keeps the first bytes and reads the rest away, so no writer ever hangs.

    Not asyncio's own pipe, with which the wait for a process lasts as long as anybody, such as a
    child left in the background, holds its output open.
    """

    def __init__(self, limit: int) -> None:
        self.read_end, self.write_end = os.pipe()
        self.kept = bytearray()
        self.cut = False
        self._limit = limit

    async def drain(self) -> None:
        """Read to the end of the stream."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self.read_end, "rb")
        )
        try:
            while chunk := await reader.read(_CHUNK):
                room = self._limit - len(self.kept)
                self.kept += chunk[: max(0, room)]
                self.cut = self.cut or len(chunk) > room
        finally:
            transport.close()


async def _wait(
    process: asyncio.subprocess.Process, seconds: float, stop: asyncio.Event | None
) -> bool:
    """Whether the process ended by itself."""
    waits = [asyncio.ensure_future(process.wait())]
    if stop is not None:
        waits.append(asyncio.ensure_future(_true(stop)))
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in waits[1:]:
            waiting.cancel()
    return waits[0] in done


async def _true(stop: asyncio.Event) -> int:
    await stop.wait()
    return 0


async def _end_all(process: asyncio.subprocess.Process, token: str | None) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    if token is None:
        return
    await asyncio.to_thread(processes.end_marked, token)
