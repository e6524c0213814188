"""The script engine: plays actions from a JSON Lines file, for tests, benchmarks and samples.

One step a line: `{"thought": text, "calls": [{"name", "arguments"}], "delay": seconds}`. Lines in
`lookahead` are the corrections that it samples if a call of the step fails; after the last of them
it repeats the step's own line. It has no token ids. Any other request gets the line's text under
`answers` for the role, or one fixed sentence (docs/design.md#commands-and-formats).
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.engines.engine_http import wait_until_set
from houston_daemon.engines.engine_protocol import EngineSample, SampleRequest
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from houston_shared.sample_roles import SAMPLE_ROLES

SCRIPTED_SUMMARY = "A script decides the steps; there is nothing to sum up."


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a line."""

    name: str
    arguments: dict[str, Any] = {}


class ScriptLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step."""

    thought: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    delay: float = 0.0
    """Seconds that the sample takes; an interrupt cuts it short."""
    lookahead: tuple["ScriptLine", ...] = ()
    """Corrections, in their order (docs/purification.md)."""
    answers: dict[str, str] = {}
    """By role, what it says where it is asked in that role before the step."""

    def attempt(self, number: int) -> "ScriptLine":
        """The line for this attempt at the step, counted from 1."""
        return self.lookahead[number - 2] if 2 <= number <= len(self.lookahead) + 1 else self


_LINE_FORM = 'A step is {"thought": text, "calls": [{"name", "arguments"}], "delay"}, one a line.'
_FINISH_LINE = ScriptLine("The script has ended.", (ScriptedCall("finish"),))


class ScriptEngine:
    """Plays `path`; a request's step selects its line, so a resumed rollout continues correctly.

    Raises ConfigurationError when the file cannot be read or a line is not a step.
    """

    token_ids = False
    window: int | None = None

    def __init__(self, path: Path, name: str = "script") -> None:
        self.name = name
        self._lines = read_script(path)
        self._next = 1

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        """Play one line; after the last one, call `finish`."""
        started = time.monotonic_ns()
        if not SAMPLE_ROLES[request.role].acts:
            script_line = self._lines[min(request.step, len(self._lines)) - 1]
            text = script_line.answers.get(request.role, SCRIPTED_SUMMARY)
            return EngineSample(text, "stop", thought=text, calls=())
        step = request.step or self._next
        line = self._lines[step - 1] if step <= len(self._lines) else _FINISH_LINE
        line = line.attempt(request.attempt)
        if line.delay > 0 and await wait_until_set(stop, line.delay):
            seconds = (time.monotonic_ns() - started) / 1e9
            return EngineSample("", "interrupted", thought="", calls=(), seconds=seconds)
        self._next = step + 1
        calls = tuple(
            ToolCall(id=f"{step}.{index}", name=call.name, arguments=call.arguments)
            for index, call in enumerate(line.calls)
        )
        seconds = (time.monotonic_ns() - started) / 1e9
        return EngineSample(
            line.thought, "stop", thought=line.thought, calls=calls, seconds=seconds
        )

    async def ready(self) -> None:
        """A script is always ready."""

    async def close(self) -> None:
        """Nothing to close."""


def read_script(path: Path) -> list[ScriptLine]:
    """Read every line of a script; blank lines are passed over.

    Raises ConfigurationError for a file that cannot be read or has no step, and for the first line
    that is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"The script {path} cannot be read: {problem}.") from problem
    lines = []
    for number, line in enumerate(text.split("\n"), 1):  # JSON may hold other line ends as text
        if line.strip():
            try:
                lines.append(msgspec.json.decode(line, type=ScriptLine))
            except (msgspec.DecodeError, RecursionError) as problem:
                raise ConfigurationError(
                    f"Line {number} of the script {path} is not a step: {problem}.",
                    next=_LINE_FORM,
                ) from problem
    if not lines:
        raise ConfigurationError(f"The script {path} has no step.", next=_LINE_FORM)
    return lines
