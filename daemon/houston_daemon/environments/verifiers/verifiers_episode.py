"""One episode of an environment of the package `verifiers`, in a separate process.

The process may use another interpreter, since the package pins other versions of packages that
Houston uses. It has no sandbox: the agent may do on this machine what the environment's tools may.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.environments.http.connected_world import reward_score
from houston_daemon.environments.http.http_simulator_client import (
    Reset,
    Score,
    SimulatorFailed,
    Step,
    Tool,
)
from houston_daemon.environments.observation_boundary import one_line
from houston_daemon.environments.simulation import simulator_process
from houston_daemon.environments.simulation.simulator_process import JsonLinesProcess, start_program
from houston_shared.task_tables import VerifiersSettings

PROGRAM = Path(__file__).with_name("verifiers_child.py")


class _Reply(msgspec.Struct, frozen=True):
    """The child's answer to any question."""

    text: str = ""
    tools: tuple[Tool, ...] = ()
    done: bool = False
    reward: float = 0.0
    error: str = ""


class VerifiersEpisode:
    """See `connected_world.World`."""

    def __init__(
        self, settings: VerifiersSettings, python: str, rollout: str, variables: Mapping[str, str]
    ) -> None:
        """python: the interpreter that has the package. variables: of its environment."""
        self._settings = settings
        self._python = python
        self._rollout = rollout
        self._variables = {"HOME": os.environ.get("HOME", "/"), **variables}
        self._child: JsonLinesProcess[_Reply] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process can still be asked."""
        return self._child is not None and self._child.alive

    async def begin(self, seed: int, settings: Mapping[str, Any]) -> Reset:
        """Start the process, and the episode of the seed's task in it."""
        await self.end()
        own = self._settings
        words = (self._python, "-P", str(PROGRAM), str(os.getpid()))
        try:
            process = await start_program(words, self._rollout, self._variables)
        except simulator_process.SimulatorFailed as problem:
            raise SimulatorFailed(f"The environment's process: {problem}.") from None
        self._child = JsonLinesProcess(process, msgspec.json.Decoder(_Reply))
        number = own.index if own.index >= 0 else seed // own.repeat
        question = {
            "do": "begin",
            "taskset": own.taskset,
            "env": own.env,
            "settings": dict(settings),
            "number": number,
        }
        try:
            answer = await self._ask(question, own.start_seconds)
        except SimulatorFailed:
            await self.end()
            raise
        return Reset(text=answer.text, tools=answer.tools)

    async def act(self, tool: str, arguments: Mapping[str, Any]) -> Step:
        """One message of the agent's, with what followed it."""
        question = {"do": "act", "tool": tool, "arguments": dict(arguments)}
        answer = await self._ask(question, self._settings.seconds)
        return Step(text=answer.text, done=answer.done)

    async def score(self) -> Score:
        """The reward of the trace; an episode that has not ended ends."""
        answer = await self._ask({"do": "score"}, self._settings.seconds)
        return reward_score(answer.reward, self._settings.full_reward)

    async def end(self) -> None:
        """End the process and all that it started."""
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _ask(self, question: Mapping[str, Any], seconds: float) -> _Reply:
        assert self._child is not None, "begin() comes first"
        try:
            answer = await self._child.ask(question, seconds)
        except simulator_process.SimulatorFailed as problem:  # the process has been ended
            raise SimulatorFailed(f"The environment's process: {problem}.", done=None) from None
        if answer.error:
            raise SimulatorFailed(f"The environment failed: {one_line(answer.error, 500)}")
        return answer
