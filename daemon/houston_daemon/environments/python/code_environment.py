"""What environments with a code tool have in common: a sandbox, perhaps a question, and after a
crash no second run of code that may have reached the network. Each defines its own calls.
"""

import asyncio
import logging
import time
from typing import ClassVar

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.call_handling import (
    CallInterrupted,
    ToolEnvironment,
    named_failure,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop, Undo
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.questions.question_answering import QuestionAnswering
from houston_daemon.environments.tool_arguments import Catalog
from houston_daemon.environments.typed_observation import Interrupted
from houston_daemon.hosts.local_host import LocalHost
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import HoustonError
from houston_shared.records import CallIntent, ToolCall, ToolResult
from houston_shared.task import Task


class CodeEnvironment(ToolEnvironment):
    """A code tool, and perhaps a question, for one rollout.

    See `environment_protocol.Environment`.
    """

    code_call: ClassVar[str]
    """Name of the call that runs code."""

    def __init__(
        self,
        task: Task,
        host: LocalHost,
        catalog: Catalog,
        answering: QuestionAnswering | None,
        characters: int,
    ) -> None:
        super().__init__(characters, scores=answering is not None, host=host)
        self._task = task
        self._host: LocalHost = host
        self._catalog = catalog
        self._answering = answering
        self.tools = catalog.tools
        # Each call is a process of its own in a scratch folder; what it sent out stays sent.
        self.undo: Undo = "none" if task.mapped.network else "stateless"

    async def open(self, begun: bool = False) -> None:
        """Try the sandbox; choose the question, or find it again. Raises HoustonError."""
        await self._host.prepare(None)
        if self._answering is None:
            return
        state = await asyncio.to_thread(self._answering.find, begun)
        if state is None:
            state = await asyncio.to_thread(self._answering.begin)
        self.brief = f"Question: {state.question.question}"

    async def recover(
        self, intent: CallIntent, budget_status: BudgetStatus, stop: Stop
    ) -> ToolResult:
        """Like `act`, except for code that may have reached the network."""
        call = self.check(intent.call)
        if call.error or call.name != self.code_call or not self._task.mapped.network:
            return await self.act(call, budget_status, stop)
        error = "The daemon went down while the code ran."
        return await self._result(call, Interrupted(error=error, now=""), time.monotonic())

    def _check(self, call: ToolCall) -> ToolCall:
        return self._catalog.check(call)

    def _error_text(self, call: ToolCall, problem: Exception) -> str:
        if isinstance(problem, CallInterrupted):
            return str(problem)
        if isinstance(problem, HoustonError):
            logging.getLogger(type(self).__module__).exception("%s", call.name)
            return named_failure(call, problem)
        return ""


def sandbox_of_setup(setup: EnvironmentSetup) -> LocalHost:
    """The rollout's own sandbox, with the GPUs that it has leased."""
    leased = tuple(setup.gpus.get(LOCAL_HOST, ()))
    return local_host_setup.local_host(setup.spec, setup.task, setup.owner, gpus=leased)
