"""A simulated world that outlives its simulator: a new one repeats all turns, and is checked.

The turns are logged on the host, with enough to rebuild the world and to prove it the same.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.environments.simulation.simulator_process import Child, SimulatorFailed
from houston_daemon.environments.simulation.simulator_protocol import (
    Answer,
    Do,
    Lines,
    Open,
    Opened,
    Question,
    Refused,
    Seen,
    Show,
)
from houston_shared import atomic_file


class WorldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    settings: dict[str, Any]
    """What the simulator was asked for; never chosen anew."""
    hash: str


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn."""

    call: str
    action: str
    hash: str


class LogDamaged(Exception):
    """The file cannot be what was written; the text says why."""


class ActionLog:
    """The file of one rollout."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.beginning: WorldSettings | None = None
        self.turns: list[Turn] = []

    def load(self) -> None:
        """Read it, if there is one. A last line without an end was never answered: it goes.

        Raises OSError, LogDamaged.
        """
        data, complete = self._read()
        if complete != data:
            with self._file.open("r+b") as opened:
                opened.truncate(len(complete))
                os.fsync(opened.fileno())

    def _read(self) -> tuple[bytes, bytes]:
        """Take over what is in the file and change nothing there; all of it, and its whole lines.

        Raises OSError, LogDamaged.
        """
        self.beginning, self.turns = None, []
        if not self._file.is_file():
            return b"", b""
        data = self._file.read_bytes()
        complete = data[: data.rfind(b"\n") + 1]
        try:
            lines = complete.splitlines()
            if lines:
                self.beginning = msgspec.json.decode(lines[0], type=WorldSettings)
            self.turns = [msgspec.json.decode(line, type=Turn) for line in lines[1:]]
        except ValueError:  # msgspec's own, and bytes that are no UTF-8
            raise LogDamaged(f"{self._file} is damaged") from None
        return data, complete

    def branch(self, parent: Path, step: int, changed: dict[str, Any]) -> None:
        """Write what was done in the parent's world up to and with `step`.

        The parent may be at work: its log is only read. changed: settings that are the branch's
        own. Raises OSError, and LogDamaged also where the parent has no log.
        """
        past = ActionLog(parent)
        past._read()
        if past.beginning is None:
            raise LogDamaged(f"{parent}, the record of what its parent did, is no longer there")
        settings = {**past.beginning.settings, **changed}
        turns = [turn for turn in past.turns if int(turn.call.partition(".")[0]) <= step]
        lines = [msgspec.structs.replace(past.beginning, settings=settings), *turns]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        atomic_file.write_atomically(self._file, data)

    def save_as(self, file: Path) -> None:
        """Keep a copy. Raises OSError."""
        atomic_file.write_atomically(file, self._file.read_bytes())

    def return_to(self, file: Path) -> bool:
        """Take a kept copy's place; False where nothing was done since.

        Raises OSError, LogDamaged.
        """
        kept_log = ActionLog(file)
        kept_log._read()
        if kept_log.beginning is None:
            raise LogDamaged(f"{file}, the state that was kept, is no longer there")
        if kept_log.turns == self.turns:
            return False
        atomic_file.write_atomically(self._file, file.read_bytes())
        self.load()
        return True

    def begin(self, beginning: WorldSettings) -> None:
        """Write the first line. Raises OSError."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._append(beginning)
        self.beginning = beginning

    def add(self, turn: Turn) -> None:
        """Write a turn. Raises OSError."""
        self._append(turn)
        self.turns.append(turn)

    def _append(self, line: msgspec.Struct) -> None:
        before = self._file.stat().st_size if self._file.is_file() else 0
        try:
            with self._file.open("ab") as opened:
                opened.write(msgspec.json.encode(line) + b"\n")
                opened.flush()
                os.fsync(opened.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # a full disk may have taken a part of the line
                os.truncate(self._file, before)
            raise


def digest(answer: msgspec.Struct) -> str:
    """A hash of everything that an answer says."""
    return hashlib.blake2b(msgspec.json.encode(answer), digest_size=12).hexdigest()


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SimulatorTimeouts:
    """How long a simulator may take, in seconds."""

    opening: float = 180.0
    """Start, and making the world."""
    turn: float = 30.0
    """One turn, or a look."""


@dataclass(frozen=True, slots=True)
class WorldOrigin:
    """Where the world of a branch comes from."""

    log: Path
    """The parent's."""
    step: int
    """The last one that the branch shares."""
    changed: dict[str, Any]
    """Settings that are the branch's own."""


class WorldLost(Exception):
    """The world of the log cannot be made again; the text says why."""


class SimulatedWorld:
    """One rollout's world."""

    def __init__(self, module: str, rollout: str, file: Path, patience: SimulatorTimeouts) -> None:
        self._module = module
        self._rollout = rollout
        self._file = file
        self._log = ActionLog(file)
        self._patience = patience
        self._child: Child | None = None
        self._newest: list[tuple[str, Seen]] = []
        """The two newest turns: the call, and what it gave."""
        self.start: Opened | None = None

    @property
    def last(self) -> Seen | None:
        """What the newest turn gave."""
        return self._newest[-1][1] if self._newest else None

    def before(self, call: str) -> Seen | None:
        """What the newest turn before that of `call` gave."""
        earlier = [answer for turn_call, answer in self._newest if turn_call != call]
        return earlier[-1] if earlier else None

    @property
    def child(self) -> Child | None:
        """The simulator that runs now."""
        return self._child if self._child and self._child.alive else None

    async def open(
        self, settings: dict[str, Any], begun: bool, past: WorldOrigin | None = None
    ) -> Opened:
        """Make the world, or make it again as it was.

        begun: the rollout has steps in it. past: where a branch comes from.
        Raises SimulatorFailed, WorldLost, OSError.
        """
        try:
            await asyncio.to_thread(self._load_log, past)
        except LogDamaged as problem:
            raise WorldLost(str(problem)) from None
        if self._log.beginning is None and begun:
            raise WorldLost("the record of what was done in it is no longer on the host")
        if self._log.beginning is None:
            child, opened = await self._open_world(settings)
            self._child = child
            beginning = WorldSettings(settings=settings, hash=digest(opened))
            await asyncio.to_thread(self._log.begin, beginning)
            self.start = opened
        else:
            await self._restart()
        assert self.start is not None
        return self.start

    def _load_log(self, past: WorldOrigin | None) -> None:
        self._log.load()
        if self._log.beginning is None and past is not None:
            self._log.branch(past.log, past.step, past.changed)
            self._log.load()

    async def act(self, call: str, action: str) -> Seen:
        """One turn, made once for each call. Raises SimulatorFailed, WorldLost, OSError.

        A simulator that fails is replaced and asked once more.
        """
        if self._newest and self._newest[-1][0] == call:
            return self._newest[-1][1]
        answer = await self._ask_with_restart(Do(action))
        if not isinstance(answer, Seen):
            raise SimulatorFailed("its answer is none to a turn")
        try:  # no waiting here: a turn is done and written, or called off and neither
            self._log.add(Turn(call=call, action=action, hash=digest(answer)))
        except OSError:
            await self.close()  # it is one turn ahead
            raise
        self._newest = [*self._newest[-1:], (call, answer)]
        return answer

    async def look(self, show: Show) -> list[str]:
        """A look. Raises SimulatorFailed, WorldLost."""
        answer = await self._ask_with_restart(show)
        if not isinstance(answer, Lines):
            raise SimulatorFailed("its answer is none to a look")
        return answer.lines

    async def save(self, name: str) -> None:
        """Keep under `name` what was done so far. Raises OSError."""
        await asyncio.to_thread(self._log.save_as, self._kept_file(name))

    async def restore(self, name: str) -> None:
        """The world as `name` kept it; made again where something was done since.

        Raises SimulatorFailed, WorldLost, OSError.
        """
        try:
            changed = await asyncio.to_thread(self._log.return_to, self._kept_file(name))
        except LogDamaged as problem:
            raise WorldLost(str(problem)) from None
        if changed:
            await self._restart()

    def _kept_file(self, name: str) -> Path:
        return self._file.with_name(f"{self._file.stem}.{name}{self._file.suffix}")

    async def close(self) -> None:
        """End the simulator."""
        if self._child is not None:
            await self._child.end()
            self._child = None

    async def _ask_with_restart(self, question: Question) -> Answer:
        child = self.child
        if child is not None:
            try:
                return await child.ask(question, self._patience.turn)
            except SimulatorFailed as problem:
                log.warning("the simulator is replaced: %s", problem)
        await self._restart()
        assert self._child is not None
        return await self._child.ask(question, self._patience.turn)

    async def _restart(self) -> None:
        """A new simulator with the world of the log; what is known stays until it has that."""
        await self.close()
        newest: list[tuple[str, Seen]] = []
        beginning = self._log.beginning
        assert beginning is not None
        child, opened = await self._open_world(beginning.settings)
        try:
            self._check_digest(opened, beginning.hash, "its beginning")
            for number, turn in enumerate(self._log.turns, 1):
                answer = await child.ask(Do(turn.action), self._patience.turn)
                self._check_digest(answer, turn.hash, f"turn {number}, {turn.action!r},")
                assert isinstance(answer, Seen)
                newest = [*newest[-1:], (turn.call, answer)]
        except BaseException:
            await child.end()
            raise
        self._child, self.start, self._newest = child, opened, newest

    async def _open_world(self, settings: dict[str, Any]) -> tuple[Child, Opened]:
        child = await Child.start(self._module, self._rollout)
        answer = await child.ask(Open(settings), self._patience.opening)
        if isinstance(answer, Opened):
            return child, answer
        await child.end()
        reason = answer.why if isinstance(answer, Refused) else "it opened no world"
        raise SimulatorFailed(reason)

    def _check_digest(self, answer: Answer, expected: str, subject: str) -> None:
        if digest(answer) != expected:
            raise WorldLost(
                f"{subject} is not what it was when it was first done; the simulator may be of"
                " another version"
            )
