"""Runs one process to its end, with limits: time, output, a stop event.

Nothing is left behind: the process group is killed, then everything that carries this run's token
in its environment (what left its group and session; a bubblewrap sandbox ends as a whole anyway).
It does not know what the command means.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Sequence

from houston_daemon.hosts import processes
from houston_daemon.hosts.protocol import Finished
from houston_shared.errors import HoustonError

TOKEN = "HOUSTON_SPAWN"
_CHUNK = 1 << 16
_DRAIN_SECONDS = 2.0


def new_token() -> str:
    """A value for TOKEN in the environment of the process to be spawned."""
    return f"{TOKEN}={secrets.token_hex(12)}"


async def run_to_end(
    argv: Sequence[str],
    *,
    token: str,
    seconds: float,
    stop: asyncio.Event | None,
    output_limit: int,
) -> Finished:
    """Start `argv` and wait for its end; `output_limit` bytes are kept of each stream.

    exit_code is None when `seconds` passed or `stop` was set first.
    Raises HoustonError when the program cannot be started at all.
    """
    begun = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
    except OSError as error:
        raise HoustonError(
            f"{argv[0]} could not be started: {error.strerror}.", "The command did not run."
        ) from error
    assert process.stdout is not None and process.stderr is not None
    out, err = _Stream(output_limit), _Stream(output_limit)
    readers = asyncio.gather(out.drain(process.stdout), err.drain(process.stderr))
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
    """Keeps the first bytes of a stream and reads the rest away, so that the writer never hangs."""

    def __init__(self, limit: int) -> None:
        self.kept = bytearray()
        self.cut = False
        self._limit = limit

    async def drain(self, reader: asyncio.StreamReader) -> None:
        """Read to the end of the stream."""
        while chunk := await reader.read(_CHUNK):
            room = self._limit - len(self.kept)
            self.kept += chunk[:room]
            self.cut = self.cut or len(chunk) > room


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


async def _end_all(process: asyncio.subprocess.Process, token: str) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    for _ in range(20):  # one that was forking may have left a child behind
        if not await asyncio.to_thread(processes.kill_marked, token):
            return
        await asyncio.sleep(0.01)
