"""One simulator in a process of its own: started, asked within limits of time, and ended for good.

The child leads a session, so that all that it started (a Java machine) ends with its group; it ends
itself when the worker dies. Knows nothing of tasks and actions.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from houston_daemon.environments.simulation.simulator_protocol import Answer, Question
from houston_daemon.hosts.process_table import MARK_VARIABLE

_LONGEST = 1 << 24
"""Bytes of an answer."""
_LAST_WORDS = 20
"""Lines of stderr that are kept."""
_ENDING = 5.0


class SimulatorFailed(Exception):
    """The simulator died, did not answer in time, or answered nonsense; it is ended already."""


AnswerT = TypeVar("AnswerT")


class JsonLinesProcess(Generic[AnswerT]):
    """A running program that answers each line of JSON with one."""

    def __init__(
        self, process: asyncio.subprocess.Process, decoder: msgspec.json.Decoder[AnswerT]
    ) -> None:
        self._process = process
        self._decoder = decoder
        self._words: deque[bytes] = deque(maxlen=_LAST_WORDS)
        self._listening = asyncio.create_task(self._listen())

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        """Process id, and that of its group."""
        return self._process.pid

    async def ask(self, question: Any, seconds: float) -> AnswerT:
        """Its answer. Raises SimulatorFailed; after that, or a cancellation, it has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            async with asyncio.timeout(seconds):
                stdin.write(msgspec.json.encode(question) + b"\n")
                await stdin.drain()
                line = await stdout.readline()
            return self._decoder.decode(line)
        except BaseException as problem:  # an answer that comes later would be taken for the next
            await self.end()
            if isinstance(problem, TimeoutError):
                raise SimulatorFailed(f"it did not answer within {seconds:g} s") from None
            if isinstance(problem, OSError | ValueError | msgspec.MsgspecError):
                raise SimulatorFailed(await self._exit_reason()) from None
            raise

    async def end(self) -> None:
        """Kill it and everything it started; harmless when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDING):
                await asyncio.shield(asyncio.gather(self._process.wait(), self._listening))

    async def _listen(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while chunk := await stderr.read(4_096):
            self._words.extend(chunk.splitlines())

    async def _exit_reason(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDING):
                await asyncio.shield(self._listening)
        last = next((word for word in reversed(self._words) if word.strip()), b"")
        words = last.decode("utf-8", "replace").strip()[:300]
        return f"it ended{f': {words}' if words else ' without a word'}"


async def start_program(
    words: Sequence[str], rollout: str, variables: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """Start a program that answers lines. Raises SimulatorFailed.

    Same seeds must give the same world in every process, so the order of sets is fixed.
    variables: of its environment, besides PATH and the like.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        **variables,
        MARK_VARIABLE: rollout,
    }
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=environment,
            limit=_LONGEST,
        )
    except OSError as problem:
        raise SimulatorFailed(f"it cannot be started: {problem.strerror}") from None


class Child(JsonLinesProcess[Answer]):
    """A running simulator."""

    @classmethod
    async def start(cls, module: str, rollout: str) -> "Child":
        """Run `module`, a program that calls `serve`. Raises SimulatorFailed."""
        words = (sys.executable, "-P", "-m", module, str(os.getpid()))
        process = await start_program(words, rollout, {})
        return cls(process, msgspec.json.Decoder(Answer))

    async def ask(self, question: Question, seconds: float) -> Answer:
        """See `JsonLinesProcess.ask`."""
        return await super().ask(question, seconds)
