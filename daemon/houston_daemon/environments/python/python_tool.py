"""Runs code in a process of its own: a scratch folder, limits of time and memory."""

import asyncio
import logging
import signal
from pathlib import Path
from typing import ClassVar

import msgspec

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.typed_observation import Observation, Text, render
from houston_daemon.hosts.host_protocol import ProcessResult, RolloutHost
from houston_shared.task_tables import PythonToolSettings


class Executed(Observation, frozen=True, kw_only=True):
    """Code that was run; `success` is false when an exception, or a limit, ended it."""

    kind: ClassVar[str] = "python"
    bulk: ClassVar[tuple[str, ...]] = ("output",)
    error_type: str = ""
    """Name of the exception's class; `TimeoutError` beyond the time limit, `Killed` where something
    else ended the process. Empty when the code ran to its end."""
    traceback_lines: tuple[str, ...] = ()
    """The traceback, of a long one its ends."""
    seconds: float
    output: str
    dropped: bool = False
    """Whether output beyond the limit was not kept."""


class PythonFinished(Observation, frozen=True, kw_only=True):
    """The end of a task that asks no question of a set."""

    kind: ClassVar[str] = "finish"
    answer: str
    finished: bool


@render.register
def _(result: Executed) -> Text:
    dropped = "[output beyond this was not kept]" if result.dropped else ""
    trace = result.traceback_lines or (
        (f"{result.error_type}: {result.error}",) if result.error_type else ()
    )
    parts = [result.output.rstrip("\n"), dropped, *trace]
    body = "\n".join(part for part in parts if part)
    return Text("", body or "(The code ran and printed nothing.)", "print less")


@render.register
def _(result: PythonFinished) -> Text:
    return Text("Finished." if result.finished else f"Error: {result.error}")


log = logging.getLogger(__name__)
MISSING = "pip install 'houston-agents[envs]'"
MAX_CODE_CHARACTERS = 30_000
"""Characters: as UTF-8 they fit into one variable of an environment (128 KiB on Linux)."""
_PROGRAM = Path(__file__).with_name("python_child.py")
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

    def __init__(self, host: RolloutHost, settings: PythonToolSettings) -> None:
        self._host = host
        self._settings = settings

    async def run(self, code: str) -> Executed:
        """What the code did. Cancelling ends it. Raises HoustonError when the host cannot."""
        settings = self._settings
        if "\0" in code:  # no variable of an environment can hold it, nor can Python read it
            return _syntax_error("source code cannot contain null bytes")
        folders = map(str, local_host_setup.PACKAGES)
        result = await self._host.spawn(
            [local_host_setup.PYTHON, "-I", "-S", str(_PROGRAM), str(settings.memory_mb),
             ",".join(settings.packages), *folders],
            seconds=settings.seconds,
            writable=False,
            extra_read=await asyncio.to_thread(self._mapped_paths),
            environment={"HOUSTON_CODE": code, **_ONE_THREAD},
            output_limit=_OUTPUT,
        )  # fmt: skip
        return self._build_result(result)

    def _mapped_paths(self) -> list[Path]:
        places = local_host_setup.package_paths(self._settings.packages)
        return list(local_host_setup.interpreter_paths(_PROGRAM, *places))

    def _build_result(self, result: ProcessResult) -> Executed:
        report = self._report(result)
        return Executed(
            success=not report.error_type,
            error=report.message or report.error_type,
            error_type=report.error_type,
            traceback_lines=report.traceback,
            seconds=round(result.seconds, 4),
            output=result.stdout.decode("utf-8", "replace"),
            dropped=result.cut,
        )

    def _report(self, result: ProcessResult) -> _Report:
        if result.exit_code is None:
            limit = f"the code ran longer than {self._settings.seconds:g} s and was ended"
            return _Report("TimeoutError", limit)
        try:
            return msgspec.json.decode(result.stderr, type=_Report)
        except ValueError:  # the code can write there, too
            stderr = result.stderr.decode("utf-8", "replace")[-2_000:]
            log.warning("code ended with %s: %s", result.exit_code, stderr)
            return _Report("Killed", f"the process ended without a word ({_end(result.exit_code)})")


def _syntax_error(reason: str) -> Executed:
    line = f"SyntaxError: {reason}"
    return Executed(
        success=False, error=reason, error_type="SyntaxError", traceback_lines=(line,), seconds=0.0,
        output="",
    )  # fmt: skip


def _end(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit code {code}"
