"""The mcp environment: tools of servers, and perhaps an evaluator over the workspace."""

import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from houston_daemon.environments.call_handling import (
    CallInterrupted,
    ToolEnvironment,
    cancel_on_stop,
    finish,
    named_failure,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Closing, Stop
from houston_daemon.environments.mcp.mcp_connection import ServerFailed
from houston_daemon.environments.mcp.mcp_servers import Servers, tool_result_text
from houston_daemon.environments.mcp.mcp_step_changes import StepChanges
from houston_daemon.environments.rollout_state import state_file
from houston_daemon.environments.typed_observation import Interrupted, Observation, Text, render
from houston_daemon.hosts.local_host import LocalHost
from houston_shared.errors import HoustonError
from houston_shared.records import EVALUATION_CALL, CallIntent, ToolCall, ToolResult
from houston_shared.task import Task

if TYPE_CHECKING:
    from houston_daemon.environments.workstation.evaluator import Evaluation
from functools import partial

from houston_daemon.environments import call_handling
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.local_host_setup import local_host
from houston_daemon.environments.mcp.mcp_actions import own_actions
from houston_daemon.environments.mcp.mcp_connection import Connection
from houston_daemon.hosts.rollout_workspace import BranchSnapshot
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.records import RolloutSpec
from houston_shared.secret_redaction import restore_secrets
from houston_shared.task_tables import McpServerSettings


class ToolCalled(Observation, frozen=True, kw_only=True):
    """A tool's result; `success` is what the server says."""

    kind: ClassVar[str] = "mcp"
    bulk: ClassVar[tuple[str, ...]] = ("text", "news")
    server: str
    tool: str
    """The tool's name at its server."""
    text: str
    not_shown: tuple[str, ...] = ()
    """Kinds of content that are declared and not shown."""
    tools_changed: bool = False
    news: str = ""
    """What changed in the tools."""


@render.register
def _(result: ToolCalled) -> Text:
    failed = "The tool reports an error:" if result.error else ""
    return Text(
        failed, "\n".join(part for part in (result.text or "(no content)", result.news) if part)
    )


log = logging.getLogger(__name__)


class McpEnvironment(ToolEnvironment):
    """Servers of tools for one rollout. See `environment_protocol.Environment`."""

    def __init__(
        self,
        task: Task,
        rollout: str,
        host: LocalHost,
        servers: Servers,
        steps: StepChanges,
        *,
        source: Path | None,
        evaluation: "Evaluation | None",
        characters: int,
    ) -> None:
        super().__init__(characters, scores=evaluation is not None, host=host)
        self._task = task
        self._rollout = rollout
        self._host: LocalHost = host
        self._servers = servers
        self._steps = steps
        self._source = source
        self._evaluation = evaluation

    async def open(self, begun: bool = False) -> None:
        """Make the workspace and start the servers. Raises HoustonError, NeedsPerson."""
        await self._host.prepare(self._source, begun)
        await self._steps.open()
        await self._servers.open(self._rollout)
        self.tools = self._servers.tools
        self.brief = self._servers.instructions

    async def recover(
        self, intent: CallIntent, budget_status: BudgetStatus, stop: Stop
    ) -> ToolResult:
        """The tool is not called again, since nobody knows what it did."""
        call = self.check(intent.call)
        if call.error or self._servers.offered.find(call.name) is None:
            return await self.act(call, budget_status, stop)
        lost = Interrupted(error=f"The daemon went down while {call.name} ran.", now="")
        return await self._result(call, lost, time.monotonic())

    async def close_step(self, step: int) -> Closing:
        """Take the step's snapshot; the same again for the same step."""
        return await self._steps.close(step)

    async def close(self, ended: bool) -> None:
        """End the servers that were started here."""
        await self._servers.close()
        await super().close(ended)

    def _check(self, call: ToolCall) -> ToolCall:
        return self._servers.check(call)

    def _error_text(self, call: ToolCall, problem: Exception) -> str:
        if isinstance(problem, ServerFailed):
            return str(problem)
        if isinstance(problem, CallInterrupted):
            return f"{problem} The server was told; what it did is unknown."
        return named_failure(call, problem) if isinstance(problem, HoustonError) else ""

    async def _observe(
        self, call: ToolCall, budget_status: BudgetStatus, stop: Stop
    ) -> Observation:
        await asyncio.to_thread(self._steps.run)
        return await super()._observe(call, budget_status, stop)

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        if self._servers.offered.find(call.name) is not None:
            return await cancel_on_stop(self._call(call), stop, wake=True)
        if call.name == EVALUATION_CALL and self._evaluation is not None:
            return await self._evaluation.run(budget_status, stop)
        return finish(budget_status, self._task.budget.minimum_steps)

    async def _call(self, call: ToolCall) -> Observation:
        tool = self._servers.offered.find(call.name)
        assert tool is not None
        answer = await self._servers.call(call)
        try:
            await self._servers.look(call.name)
        except ServerFailed as problem:  # the result is there; the next call will tell
            log.warning("%s", problem)
        self.tools = self._servers.tools
        news = await asyncio.to_thread(self._servers.news)
        result_text = tool_result_text(answer)
        return ToolCalled(
            success=not answer.is_error,
            error=f"{call.name} reports an error." if answer.is_error else "",
            server=tool.source,
            tool=tool.name,
            text=result_text.text,
            not_shown=result_text.not_shown,
            tools_changed=bool(news),
            news=news,
        )


async def mcp_arrival(spec: RolloutSpec, task: Task, host: LocalHost) -> tuple[str, ...]:
    """The lines for a branch; none for any other rollout."""
    if spec.origin is None:
        return ()
    servers = task.mcp.servers.items()
    started = ", ".join(name for name, server in servers if not server.url)
    reached = ", ".join(name for name, server in servers if server.url)
    parts = [
        f"from after step {spec.parent_step} on this work goes on in a new place: the workspace is"
        " as it was after that step"
    ]
    if started:
        parts.append(
            f"what these servers knew beside it is gone, they were started anew: {started}"
        )
    if reached:
        parts.append(f"these servers are as they are now, not as they were then: {reached}")
    return f"[{'; '.join(parts)}]", *call_handling.lost_files_text(await host.unrestored_paths())


def build_environment(setup: EnvironmentSetup) -> McpEnvironment:
    """The environment; no server is started before `open`."""
    spec, task = setup.spec, setup.task
    commit = spec.origin.snapshot if spec.origin else ""
    past = BranchSnapshot(spec.parent, commit) if commit else None
    host = local_host(spec, task, setup.owner, past, tuple(setup.gpus.get(LOCAL_HOST, ())))
    connections = [
        Connection(name, server, partial(_start, host, server), _restore_values(server.headers))
        for name, server in task.mcp.servers.items()
    ]
    arrival = partial(mcp_arrival, spec, task, host)
    steps = StepChanges(host, state_file(spec, "mcp-steps.json"), arrival)
    source = task.workspace.source
    return McpEnvironment(
        task,
        spec.rollout,
        host,
        Servers(
            connections,
            own_actions(task),
            task.tools,
            state_file(spec, "mcp.json"),
            state_file(spec, "mcp.json", spec.parent) if spec.origin else None,
        ),
        steps,
        source=Path(spec.task.folder) / source if source else None,
        evaluation=_evaluation(setup, host, steps),
        characters=setup.characters,
    )


async def _start(host: LocalHost, server: McpServerSettings) -> list[str]:
    return await host.enclosed([server.command, *server.args], _restore_values(server.env))


def _evaluation(
    setup: EnvironmentSetup, host: LocalHost, steps: StepChanges
) -> "Evaluation | None":
    spec, task = setup.spec, setup.task
    if not task.evaluate.command:
        return None
    from houston_daemon.environments.workstation.evaluator import Evaluation, Slots

    slots = Slots(Path(spec.host_root), task.name, task.evaluate.slots, setup.waiting_for_slot)
    return Evaluation(host, task, Path(spec.task.folder), slots, steps.mark)


def _restore_values(values: dict[str, str]) -> dict[str, str]:
    return {name: restore_secrets(value) for name, value in values.items()}
