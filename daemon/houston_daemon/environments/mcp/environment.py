"""mcp as the loop sees it: tools of servers, and perhaps an evaluator over the workspace.

Servers that are started here run in the rollout's sandbox, with its workspace. A server that
dies, hangs or talks nonsense is an observation.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from houston_daemon.environments.interruption import BrokenOff, unless_stopped
from houston_daemon.environments.mcp.connection import ServerFailed
from houston_daemon.environments.mcp.content import given
from houston_daemon.environments.mcp.observations import Called, Finish
from houston_daemon.environments.mcp.servers import Servers
from houston_daemon.environments.mcp.steps import Steps
from houston_daemon.environments.observation import Interrupted, Observation
from houston_daemon.environments.observing import failed, observed, too_early
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.result import result_since
from houston_daemon.hosts.local import LocalHost
from houston_shared.errors import HoustonError
from houston_shared.records import Call, Intent, Result
from houston_shared.task import Task

if TYPE_CHECKING:
    from houston_daemon.environments.workstation.evaluation.evaluator import Evaluation

log = logging.getLogger(__name__)
_EVAL = "eval"


class McpEnvironment:
    """Servers of tools for one rollout. See `protocol.Environment`."""

    def __init__(
        self,
        task: Task,
        rollout: str,
        host: LocalHost,
        servers: Servers,
        steps: Steps,
        *,
        source: Path | None,
        evaluation: "Evaluation | None",
        characters: int,
    ) -> None:
        self._task = task
        self._rollout = rollout
        self._host = host
        self._servers = servers
        self._steps = steps
        self._source = source
        self._evaluation = evaluation
        self._characters = characters
        self.tools: Sequence[ToolSpec] = ()
        self.brief = ""

    async def open(self, begun: bool = False) -> None:
        """Make the workspace and start the servers. Raises HoustonError, NeedsPerson."""
        await self._host.prepare(self._source, begun)
        await self._steps.open()
        await self._servers.open(self._rollout)
        self.tools = self._servers.tools
        self.brief = self._servers.instructions

    def check(self, call: Call) -> Call:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        if self._evaluation and call.name == _EVAL and not call.arguments and not call.error:
            return call  # the loop scores also where the agent is not offered it
        return self._servers.check(call)

    def deadline(self, call: Call) -> float:
        """Nothing here sleeps."""
        return 0.0

    async def act(self, call: Call, standing: Standing, stop: Stop) -> Result:
        """Run one call; what goes wrong is an observation."""
        begun = time.monotonic()
        call = self.check(call)
        await asyncio.to_thread(self._steps.run)
        return await self._result(call, await self._observe(call, standing, stop), begun)

    async def recover(self, intent: Intent, standing: Standing, stop: Stop) -> Result:
        """A tool is not called again: nobody knows what it did."""
        call = self.check(intent.call)
        if call.error or self._servers.offered.find(call.name) is None:
            return await self.act(call, standing, stop)
        lost = Interrupted(error=f"The daemon went down while {call.name} ran.", now="")
        return await self._result(call, lost, time.monotonic())

    async def close_step(self, step: int) -> Closing:
        """Take the step's snapshot; the same again for the same step."""
        return await self._steps.close(step)

    async def close(self, ended: bool) -> None:
        """End the servers that were started here."""
        await self._servers.close()
        if ended:
            await self._host.destroy_terminals()
        await self._host.close()

    async def _result(self, call: Call, observation: Observation, begun: float) -> Result:
        met = await self._host.limits_met()
        return await result_since(begun, call, observation, self._characters, met)

    async def _observe(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        def words(problem: Exception) -> str:
            if isinstance(problem, ServerFailed):
                return str(problem)
            if isinstance(problem, BrokenOff):
                return f"{problem} The server was told; what it did is unknown."
            return failed(call, problem) if isinstance(problem, HoustonError) else ""

        return await observed(call, lambda: self._do(call, standing, stop), words, log)

    async def _do(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        if self._servers.offered.find(call.name) is not None:
            return await unless_stopped(self._call(call), stop, wake=True)
        if call.name == _EVAL and self._evaluation is not None:
            return await self._evaluation.run(standing, stop)
        error = too_early(standing, self._task.budget.minimum_steps)
        if error:
            return Finish(success=False, error=error, finished=False)
        return Finish(finished=True)

    async def _call(self, call: Call) -> Observation:
        tool = self._servers.offered.find(call.name)
        assert tool is not None
        found = await self._servers.call(call)
        try:
            await self._servers.look(call.name)
        except ServerFailed as problem:  # the result is there; the next call will tell
            log.warning("%s", problem)
        self.tools = self._servers.tools
        news = await asyncio.to_thread(self._servers.news)
        shown = given(found)
        return Called(
            success=not found.is_error,
            error=f"{call.name} reports an error." if found.is_error else "",
            server=tool.source,
            tool=tool.name,
            text=shown.text,
            not_shown=shown.not_shown,
            tools_changed=bool(news),
            news=news,
        )
