"""A simulated world that outlives its simulator: a new one does again what was done; it is checked.

A simulator that dies or hangs is ended and replaced in the middle of a turn. Knows neither tools
nor tasks.
"""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from houston_daemon.environments.simulation.child import Child, SimulatorFailed
from houston_daemon.environments.simulation.log import ActionLog, Beginning, Damaged, Turn, digest
from houston_daemon.environments.simulation.messages import (
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

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a simulator may take, in seconds."""

    opening: float = 180.0
    """Start, and making the world."""
    turn: float = 30.0
    """One turn, or a look."""


@dataclass(frozen=True, slots=True)
class Past:
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

    def __init__(self, module: str, rollout: str, file: Path, patience: Patience) -> None:
        self._module = module
        self._rollout = rollout
        self._log = ActionLog(file)
        self._patience = patience
        self._child: Child | None = None
        self._latest: tuple[str, Seen] | None = None
        """The newest turn: the call, and what it gave."""
        self._previous: Seen | None = None
        """What the turn before it gave."""
        self.start: Opened | None = None

    @property
    def last(self) -> Seen | None:
        """What the newest turn gave."""
        return self._latest[1] if self._latest else None

    def before(self, call: str) -> Seen | None:
        """What the newest turn before that of `call` gave."""
        return self._previous if self._latest and self._latest[0] == call else self.last

    @property
    def child(self) -> Child | None:
        """The simulator that runs now."""
        return self._child if self._child and self._child.alive else None

    async def open(self, settings: dict[str, Any], begun: bool, past: Past | None = None) -> Opened:
        """Make the world, or make it again as it was.

        begun: the rollout has steps in it. past: where a branch comes from.
        Raises SimulatorFailed, WorldLost, OSError.
        """
        try:
            await asyncio.to_thread(self._found, past)
        except Damaged as problem:
            raise WorldLost(str(problem)) from None
        if self._log.beginning is None and begun:
            raise WorldLost("the record of what was done in it is no longer on the host")
        if self._log.beginning is None:
            child, opened = await self._opened(settings)
            self._child = child
            beginning = Beginning(settings=settings, hash=digest(opened))
            await asyncio.to_thread(self._log.begin, beginning)
            self.start = opened
        else:
            await self._again()
        assert self.start is not None
        return self.start

    def _found(self, past: Past | None) -> None:
        self._log.load()
        if self._log.beginning is None and past is not None:
            self._log.branch(past.log, past.step, past.changed)
            self._log.load()

    async def act(self, call: str, action: str) -> Seen:
        """One turn, made once for each call. Raises SimulatorFailed, WorldLost, OSError.

        A simulator that fails is replaced and asked once more.
        """
        if self._latest and self._latest[0] == call:
            return self._latest[1]
        answer = await self._asked(Do(action))
        if not isinstance(answer, Seen):
            raise SimulatorFailed("its answer is none to a turn")
        try:  # no waiting here: a turn is done and written, or called off and neither
            self._log.add(Turn(call=call, action=action, hash=digest(answer)))
        except OSError:
            await self.close()  # it is one turn ahead
            raise
        self._known(call, answer)
        return answer

    async def look(self, show: Show) -> list[str]:
        """A look. Raises SimulatorFailed, WorldLost."""
        answer = await self._asked(show)
        if not isinstance(answer, Lines):
            raise SimulatorFailed("its answer is none to a look")
        return answer.lines

    async def close(self) -> None:
        """End the simulator."""
        if self._child is not None:
            await self._child.end()
            self._child = None

    async def _asked(self, question: Question) -> Answer:
        child = self.child
        if child is not None:
            try:
                return await child.ask(question, self._patience.turn)
            except SimulatorFailed as problem:
                log.warning("the simulator is replaced: %s", problem)
        await self._again()
        assert self._child is not None
        return await self._child.ask(question, self._patience.turn)

    async def _again(self) -> None:
        """A new simulator with the world of the log."""
        await self.close()
        self._latest = self._previous = None
        beginning = self._log.beginning
        assert beginning is not None
        child, opened = await self._opened(beginning.settings)
        try:
            self._same(opened, beginning.hash, "its beginning")
            for number, turn in enumerate(self._log.turns, 1):
                answer = await child.ask(Do(turn.action), self._patience.turn)
                self._same(answer, turn.hash, f"turn {number}, {turn.action!r},")
                assert isinstance(answer, Seen)
                self._known(turn.call, answer)
        except BaseException:
            await child.end()
            raise
        self._child, self.start = child, opened

    async def _opened(self, settings: dict[str, Any]) -> tuple[Child, Opened]:
        child = await Child.start(self._module, self._rollout)
        answer = await child.ask(Open(settings), self._patience.opening)
        if isinstance(answer, Opened):
            return child, answer
        await child.end()
        why = answer.why if isinstance(answer, Refused) else "it opened no world"
        raise SimulatorFailed(why)

    def _known(self, call: str, seen: Seen) -> None:
        self._previous, self._latest = self.last, (call, seen)

    def _same(self, answer: Answer, expected: str, what: str) -> None:
        if digest(answer) != expected:
            raise WorldLost(
                f"{what} is not what it was when it was first done; the simulator may be of another"
                " version"
            )
