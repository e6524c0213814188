"""Runs one process to its end within limits (time, output, stop); tries whether a sandbox works.

Nothing is left behind: the process group is killed, then everything that carries this run's token
in its environment. The trial spawns a real process the way a rollout would and says what to do when
it fails. It does not know what a command means.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from houston_daemon.hosts import process_table
from houston_daemon.hosts.host_protocol import ProcessResult
from houston_daemon.hosts.sandbox.process_enclosure import Enclosure
from houston_daemon.hosts.sandbox.sandbox_profile import SandboxProfile
from houston_daemon.hosts.system_packages import advise_install
from houston_shared.errors import ExitCode, HoustonError

RUN_TOKEN_VARIABLE = "HOUSTON_SPAWN"
"""Environment variable with the token of one run."""
_READ_BYTES = 1 << 16
_DRAIN_SECONDS = 2.0


async def run_to_end(
    argv: Sequence[str],
    *,
    token: str | None,
    seconds: float,
    stop: asyncio.Event | None,
    output_limit: int,
) -> ProcessResult:
    """Start `argv` and wait for its end; `output_limit` bytes are kept of each stream.

    token: what to look for in the environment of processes to kill; None when none can be left.
    exit_code is None when `seconds` passed or `stop` was set first.
    Raises HoustonError when the program cannot be started at all.
    """
    start_time = time.monotonic()
    out, err = _OutputStream(output_limit), _OutputStream(output_limit)
    process = await _start_process(argv, out, err)
    readers = asyncio.gather(out.drain(), err.drain())
    ended = False
    try:
        ended = await _wait_for_end(process, seconds, stop)
    finally:
        await _kill_all(process, token)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(readers, _DRAIN_SECONDS)
    return ProcessResult(
        exit_code=process.returncode if ended else None,
        stdout=bytes(out.kept),
        stderr=bytes(err.kept),
        seconds=time.monotonic() - start_time,
        cut=out.cut or err.cut,
    )


async def _start_process(
    argv: Sequence[str], out: "_OutputStream", err: "_OutputStream"
) -> asyncio.subprocess.Process:
    """Start `argv` with these streams, whose writing ends are closed here. Raises HoustonError."""
    try:
        return await asyncio.create_subprocess_exec(
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


class _OutputStream:
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
            while chunk := await reader.read(_READ_BYTES):
                room = self._limit - len(self.kept)
                self.kept += chunk[: max(0, room)]
                self.cut = self.cut or len(chunk) > room
        finally:
            transport.close()


async def _wait_for_end(
    process: asyncio.subprocess.Process, seconds: float, stop: asyncio.Event | None
) -> bool:
    """Whether the process ended by itself."""
    waits = [asyncio.ensure_future(process.wait())]
    if stop is not None:
        waits.append(asyncio.ensure_future(_wait_for_stop(stop)))
    try:
        done_tasks, _ = await asyncio.wait(
            waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for waiting in waits[1:]:
            waiting.cancel()
    return waits[0] in done_tasks


async def _wait_for_stop(stop: asyncio.Event) -> int:
    await stop.wait()
    return 0


async def _kill_all(process: asyncio.subprocess.Process, token: str | None) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    if token is None:
        return
    await asyncio.to_thread(process_table.kill_all_marked, token)


_OPEN = Enclosure()
_SWITCHES = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "15000"),
}
"""Setting: (value that closes user namespaces, value that opens them)."""
_EFFECT = "No rollout was started on this machine."
_WITHOUT = 'or set sandbox = "none" in the task file (provenance cannot be promised then)'


async def probe_sandbox(
    sandbox: SandboxProfile, enclosure: Enclosure = _OPEN
) -> HoustonError | None:
    """Spawn a real process the way a rollout would; None when it works."""
    needed = {"tmux": "tmux", "bash": "bash"}
    if sandbox.kind == "bubblewrap":
        needed |= {"bwrap": "bubblewrap", "script": "bsdutils"}
    for program, package in needed.items():
        if shutil.which(program) is None:
            way = advise_install(package)
            step = f"{way}, {_WITHOUT}." if program == "bwrap" else f"{way}."
            return HoustonError(
                f"{program} is not installed.", _EFFECT, step, ExitCode.CONFIGURATION
            )
    if sandbox.kind == "none":
        return None
    argv = await asyncio.to_thread(
        sandbox.wrap, ["true"], dies_with_parent=True, enclosure=enclosure
    )
    trial = await run_to_end(argv, token=None, seconds=20, stop=None, output_limit=10_000)
    if trial.exit_code == 0:
        return None
    return _explain_failure(trial.stderr.decode("utf-8", "replace").strip())


def _explain_failure(output: str) -> HoustonError:
    closed = ("No permissions to create", "Operation not permitted", "uid map", "namespace")
    if any(words in output for words in closed):
        return HoustonError(
            f"bubblewrap is not allowed to open a user namespace here: {_closed_by(output)}.",
            _EFFECT,
            f"Allow it (as root: {_opened_by()}), {_WITHOUT}.",
            ExitCode.CONFIGURATION,
        )
    return HoustonError(
        f"bubblewrap could not start a process: {output or 'it gave no reason'}.",
        _EFFECT,
        f"Fix what it names, {_WITHOUT}.",
        ExitCode.CONFIGURATION,
    )


def _switched_off() -> dict[str, str]:
    """Kernel settings that close user namespaces to us now, with the value that opens them."""
    openers: dict[str, str] = {}
    for setting, (closed, opened) in _SWITCHES.items():
        try:
            value = Path("/proc/sys", setting.replace(".", "/")).read_text().strip()
        except OSError:
            continue  # this kernel has no such setting
        if value == closed:
            openers[setting] = opened
    return openers


def _closed_by(output: str) -> str:
    names = ", ".join(f"{name} forbids it" for name in _switched_off())
    return f"{names} ({output})" if names else output


def _opened_by() -> str:
    off = _switched_off() or {name: opened for name, (_, opened) in _SWITCHES.items()}
    return " or ".join(f"sysctl {name}={opened}" for name, opened in off.items())
