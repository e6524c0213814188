"""A world that lives as long as one connection to it, used like a simulator of `http`.

A session of OpenEnv ends with its WebSocket, an episode of `verifiers` with its process. If such a
world may be rebuilt (`replayable`), the session repeats its actions from the first, and answers
that were already given are given again. If not, the world is lost with its connection, and the
session says so. Each kind of world has its own module for its protocol.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from houston_daemon.environments.http.http_simulator_client import (
    Reset,
    Score,
    SimulatorFailed,
    Step,
)
from houston_daemon.environments.http.http_simulator_session import IgnoredAnswer

AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)


class World(Protocol):
    """One episode, over one connection at a time."""

    @property
    def alive(self) -> bool:
        """Whether the present episode can still be used."""
        ...

    async def begin(self, seed: int, settings: Mapping[str, Any]) -> Reset:
        """Start a new episode, whatever the state was. Raises SimulatorFailed."""
        ...

    async def act(self, tool: str, arguments: Mapping[str, Any]) -> Step:
        """One action. Raises SimulatorFailed; after a cancellation the world is not alive."""
        ...

    async def score(self) -> Score:
        """How well the agent did. Raises SimulatorFailed."""
        ...

    async def end(self) -> None:
        """Let go of the connection."""
        ...


class ConnectedWorld:
    """Answers a `SimulatorSession` for one world. See `http_simulator_session.Simulator`."""

    def __init__(self, world: World, replayable: bool) -> None:
        """replayable: whether the same seed and actions always lead to the same state."""
        self._world = world
        self._replayable = replayable
        self._start = Reset()
        self._answers: list[Step] = []
        """What the world that lives now answered, in order."""

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        kind: type[AnswerT],
        *,
        idempotent: bool,
        retry: bool = True,
    ) -> AnswerT:
        """The answer to `reset`, `step`, `score` or `close`. Raises SimulatorFailed."""
        answer: msgspec.Struct
        match path:
            case "reset":
                answer = await self._reset(body)
            case "step":
                answer = await self._step(body)
            case "score":
                answer = await self._score()
            case _:
                await self._world.end()
                answer = IgnoredAnswer()
        assert isinstance(answer, kind)
        return answer

    async def close(self) -> None:
        """Let go of the connection."""
        await self._world.end()

    async def _reset(self, body: Mapping[str, Any]) -> Reset:
        if not self._world.alive:
            if body["steps"] and not self._replayable:
                raise SimulatorFailed(
                    f"The world ended with its connection after {body['steps']} actions; the task"
                    " does not say that it is `replayable`."
                )
            self._answers.clear()
            self._start = await self._world.begin(body["seed"], body["settings"])
        return msgspec.structs.replace(
            self._start,
            steps=len(self._answers),
            repeatable=self._replayable,
            replayable=self._replayable,
        )

    async def _step(self, body: Mapping[str, Any]) -> Step:
        number: int = body["number"]
        if number <= len(self._answers):
            return self._answers[number - 1]
        if not self._world.alive:
            raise SimulatorFailed("The world ended with its connection.", lost=True)
        answer = await self._world.act(body["tool"], body["arguments"])
        self._answers.append(answer)
        return answer

    async def _score(self) -> Score:
        if not self._world.alive:
            raise SimulatorFailed("The world ended with its connection.", lost=True)
        return await self._world.score()


def reward_score(reward: float, full: float) -> Score:
    """A reward as a score, 0 to 100. full: the reward that scores 100."""
    share = min(1.0, max(0.0, reward / full))
    return Score(overall_score=round(100.0 * share, 6))
