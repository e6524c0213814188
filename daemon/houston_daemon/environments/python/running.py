"""Running code in a process of its own: shut in with a scratch folder, limited in time and memory.

`in_child.py` runs it; this module starts that and reads what it says. Nothing outlives a call. It
knows no question and no rollout; the command that serves the tool to others uses it too.
"""

import asyncio
import logging
import signal
from pathlib import Path

import msgspec

from houston_daemon.environments import interpreter
from houston_daemon.environments.python.observations import Executed
from houston_daemon.hosts.protocol import Finished, Host
from houston_shared.task_worlds import Python

log = logging.getLogger(__name__)
MISSING = "pip install 'houston-agents[envs]'"
MOST_CODE = 30_000
"""Characters: as UTF-8 they fit into one variable of an environment (128 KiB on Linux)."""
_PROGRAM = Path(__file__).with_name("in_child.py")
_OUTPUT = 1_000_000
"""Bytes of output that are kept."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Each thread of a BLAS takes address space, of which the memory limit counts all."""


class _Report(msgspec.Struct, frozen=True):
    error_type: str = ""
    message: str = ""
    traceback: tuple[str, ...] = ()


class PythonTool:
    """Runs code on one host; calls may overlap."""

    def __init__(self, host: Host, settings: Python) -> None:
        self._host = host
        self._settings = settings

    async def run(self, code: str) -> Executed:
        """What the code did. Cancelling ends it. Raises HoustonError when the host cannot."""
        settings = self._settings
        if "\0" in code:  # no variable of an environment can hold it, nor can Python read it
            return _unread("source code cannot contain null bytes")
        folders = map(str, interpreter.PACKAGES)
        done = await self._host.spawn(
            [interpreter.PYTHON, "-I", "-S", str(_PROGRAM), str(settings.memory_mb),
             ",".join(settings.packages), *folders],
            seconds=settings.seconds,
            writable=False,
            extra_read=await asyncio.to_thread(self._mapped),
            environment={"HOUSTON_CODE": code, **_ONE_THREAD},
            output_limit=_OUTPUT,
        )  # fmt: skip
        return self._executed(done)

    def _mapped(self) -> list[Path]:
        places = interpreter.places_of(self._settings.packages)
        return list(interpreter.mapped(_PROGRAM, *places))

    def _executed(self, done: Finished) -> Executed:
        report = self._report(done)
        return Executed(
            success=not report.error_type,
            error=report.message or report.error_type,
            error_type=report.error_type,
            traceback_lines=report.traceback,
            seconds=round(done.seconds, 4),
            output=done.stdout.decode("utf-8", "replace"),
            dropped=done.cut,
        )

    def _report(self, done: Finished) -> _Report:
        if done.exit_code is None:
            limit = f"the code ran longer than {self._settings.seconds:g} s and was ended"
            return _Report("TimeoutError", limit)
        try:
            return msgspec.json.decode(done.stderr, type=_Report)
        except ValueError:  # the code can write there, too
            said = done.stderr.decode("utf-8", "replace")[-2_000:]
            log.warning("code ended with %s: %s", done.exit_code, said)
            return _Report("Killed", f"the process ended without a word ({_end(done.exit_code)})")


def _unread(why: str) -> Executed:
    line = f"SyntaxError: {why}"
    return Executed(
        success=False, error=why, error_type="SyntaxError", traceback_lines=(line,), seconds=0.0,
        output="",
    )  # fmt: skip


def _end(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit code {code}"
