"""python as the loop sees it: run code, look at what it printed, finish with an answer.

Code has no effect that outlives its call, unless the task opens the network to it; so a call that
a restart broke off is run again.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from houston_daemon.environments.interruption import BrokenOff, unless_stopped
from houston_daemon.environments.observation import Failed, Interrupted, Observation
from houston_daemon.environments.observing import failed, observed, too_early
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.python import actions
from houston_daemon.environments.python.catalog import catalog
from houston_daemon.environments.python.observations import Finish
from houston_daemon.environments.python.running import PythonTool
from houston_daemon.environments.questions.answering import SCORE, Answering, Compared
from houston_daemon.environments.questions.number_scoring import same_answer
from houston_daemon.environments.result import result_since
from houston_daemon.hosts.local import LocalHost
from houston_shared.errors import HoustonError
from houston_shared.records import Call, Intent, Result, RolloutSpec
from houston_shared.task import Task

log = logging.getLogger(__name__)


class PythonEnvironment:
    """A code tool, and perhaps a question, for one rollout. See `protocol.Environment`."""

    def __init__(self, spec: RolloutSpec, task: Task, host: LocalHost, characters: int) -> None:
        self._task = task
        self._host = host
        self._characters = characters
        self._catalog = catalog(task)
        self._tool = PythonTool(host, task.python)
        asks = bool(task.questions.file)
        self._answering = Answering(spec, task, _compared, "Check it by code.") if asks else None
        self.tools: Sequence[ToolSpec] = self._catalog.tools
        self.brief = ""

    async def open(self, begun: bool = False) -> None:
        """Try the sandbox; choose the question, or find it again. Raises HoustonError."""
        await self._host.prepare(None)
        if self._answering is None:
            return
        state = await asyncio.to_thread(self._answering.find, begun)
        if state is None:
            state = await asyncio.to_thread(self._answering.begin)
        self.brief = f"Question: {state.question.question}"

    def check(self, call: Call) -> Call:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        if self._answering and call.name == SCORE and not call.arguments and not call.error:
            return call
        return self._catalog.check(call)

    def deadline(self, call: Call) -> float:
        """Nothing here sleeps."""
        return 0.0

    async def act(self, call: Call, standing: Standing, stop: Stop) -> Result:
        """Run one call; what goes wrong is an observation."""
        begun = time.monotonic()
        call = self.check(call)
        return await self._result(call, await self._observe(call, standing, stop), begun)

    async def recover(self, intent: Intent, standing: Standing, stop: Stop) -> Result:
        """The same as `act`, but for code that may have reached the network."""
        call = self.check(intent.call)
        if call.error or call.name != actions.RunPython.name or not self._task.mapped.network:
            return await self.act(call, standing, stop)
        error = "The daemon went down while the code ran."
        return await self._result(call, Interrupted(error=error, now=""), time.monotonic())

    async def close_step(self, step: int) -> Closing:
        """Nothing changes but the state, which is on disk."""
        return Closing()

    async def close(self, ended: bool) -> None:
        """Let go of the host."""
        if ended:
            await self._host.destroy_terminals()
        await self._host.close()

    async def _result(self, call: Call, observation: Observation, begun: float) -> Result:
        met = await self._host.limits_met()
        return await result_since(begun, call, observation, self._characters, met)

    async def _observe(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        def words(problem: Exception) -> str:
            if isinstance(problem, BrokenOff):
                return str(problem)
            if isinstance(problem, HoustonError):
                log.exception("%s", call.name)
                return failed(call, problem)
            return ""

        return await observed(call, lambda: self._do(call, standing, stop), words, log)

    async def _do(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        if call.name == SCORE and self._answering:
            return self._answering.unanswered(standing, actions.Finish.name)
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, actions.RunPython):
            return await unless_stopped(self._tool.run(arguments.code), stop)
        answer: str = call.arguments["answer"]
        if self._answering is None:
            return self._finish(answer, standing)
        if not answer.strip():
            return Failed(error="finish needs the answer to the question.")
        return await asyncio.to_thread(self._answering.answer, call.id, answer, standing)

    def _finish(self, answer: str, standing: Standing) -> Finish:
        error = too_early(standing, self._task.budget.minimum_steps)
        if error:
            return Finish(success=False, error=error, answer=answer, finished=False)
        return Finish(answer=answer, finished=True)


def _compared(answer: str, gold: Sequence[str]) -> Compared:
    return Compared(same_answer(answer, gold))
