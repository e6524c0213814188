"""The http environment: a simulator's tools, its answers, its score; what a task must name.

`openenv` and `verifiers` use the same `SimulatorEnvironment`, with clients of their own.
"""

import os
import time
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from msgspec import Meta

from houston_daemon.environments import observation_boundary
from houston_daemon.environments.call_handling import (
    CallInterrupted,
    ToolEnvironment,
    cancel_on_stop,
    finish,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.foreign_tools import ForeignTools, OfferedTool
from houston_daemon.environments.http.http_simulator_client import (
    Reset,
    SimulatorClient,
    SimulatorFailed,
)
from houston_daemon.environments.http.http_simulator_session import (
    RecordedAction,
    Simulator,
    SimulatorSession,
)
from houston_daemon.environments.tool_arguments import Arguments, Catalog, tool
from houston_daemon.environments.typed_observation import (
    Failed,
    Interrupted,
    Observation,
    Text,
    render,
)
from houston_shared.errors import ConfigurationError
from houston_shared.records import EVALUATION_CALL, CallIntent, RolloutSpec, ToolCall, ToolResult
from houston_shared.secret_redaction import redact
from houston_shared.task import LoadedTask, Task

SOURCE = "simulator"


class Act(Arguments, frozen=True, kw_only=True):
    """Do something in the world, in its own words."""

    name: ClassVar[str] = "act"
    family: ClassVar[str] = "http"
    action: Annotated[str, Meta(min_length=1, max_length=4_000, description="The action")]


class Finish(Arguments, frozen=True, kw_only=True):
    """End the episode when the task is done."""

    name: ClassVar[str] = "finish"
    family: ClassVar[str] = "http"


OWN_ACTIONS = Catalog({Finish.name: Finish})


def offered_actions(start: Reset) -> list[OfferedTool]:
    """The simulator's tools; `act` with a text where it names none."""
    if not start.tools:
        act = tool(Act)
        return [OfferedTool(SOURCE, act.name, act.description, act.parameters)]
    return [
        OfferedTool(SOURCE, described.name, described.description, described.parameters)
        for described in start.tools
    ]


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for an invalid address, or for an evaluator, which would not be
    run."""
    check_address(task, task.task.http.url)
    check_no_evaluator(task)


def check_address(task: LoadedTask, url: str) -> None:
    """Raise ConfigurationError where the `url` of the environment's table is no address."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        name = task.task.environment
        raise ConfigurationError(
            f"{task.file}: `{name}.url` is {url!r}; {name} needs the address of a simulator,"
            " http://HOST:PORT/…"
        )


def check_no_evaluator(task: LoadedTask) -> None:
    """Raise ConfigurationError for an evaluator, which would not be run."""
    if task.task.evaluate.command:
        raise ConfigurationError(
            f"{task.file}: {task.task.environment} runs no evaluator; the simulator scores."
        )


class SimulatorAnswer(Observation, frozen=True, kw_only=True):
    """The answer of the simulator to one action."""

    kind: ClassVar[str] = "http"
    bulk: ClassVar[tuple[str, ...]] = ("text",)
    text: str
    finished: bool
    """Whether the episode is over."""
    more: dict[str, Any] = {}
    """What the simulator says for rules and exports."""


class SimulatorScore(Observation, frozen=True, kw_only=True):
    """The simulator's score; the fields of an evaluation."""

    kind: ClassVar[str] = "eval"
    overall_score: float
    state: str = "scored"
    counted: bool = True


@render.register
def _(result: SimulatorAnswer) -> Text:
    over = "[the episode is over]" if result.finished else ""
    return Text(over, result.text or "(The simulator said nothing.)")


@render.register
def _(result: SimulatorScore) -> Text:
    return Text(f"overall_score: {result.overall_score:g} of 100")


_FIELDS, _NAME, _TEXT = 50, 60, 500
"""Most fields of a step; most characters of a name, and of a text."""


class SimulatorEnvironment(ToolEnvironment):
    """A simulator for one rollout. See `environment_protocol.Environment`."""

    def __init__(
        self,
        spec: RolloutSpec,
        task: Task,
        characters: int,
        client: Simulator,
        *,
        scores: bool,
        checked: bool = False,
    ) -> None:
        """client: who speaks to it. scores: whether it says how well the agent did. checked: see
        `SimulatorSession`."""
        super().__init__(characters, scores=scores)
        self._task = task
        self._client = client
        self._session = SimulatorSession(
            spec, client, task.settings, f"{task.environment}.json", checked
        )
        self._tools = ForeignTools(OWN_ACTIONS, (), task.tools)

    async def open(self, begun: bool = False) -> None:
        """Begin an episode, or go on. Raises NeedsPerson while the simulator is away."""
        await self._session.open(begun)
        state = self._session.state
        self._tools = ForeignTools(OWN_ACTIONS, offered_actions(state.start), self._task.tools)
        self.tools = self._tools.tools
        self.brief, _ = observation_boundary.cut(
            observation_boundary.readable(redact(state.start.text)), self._characters
        )

    async def recover(
        self, intent: CallIntent, budget_status: BudgetStatus, stop: Stop
    ) -> ToolResult:
        """What the simulator did is not repeated; if it can tell, the call is run or found."""
        start_time, call = time.monotonic(), self.check(intent.call)
        foreign = self._tools.find(call.name)
        if call.error or foreign is None or self._session.state.start.repeatable:
            return await self.act(call, budget_status, stop)
        error = "The daemon went down during the action."
        try:
            was_applied = await cancel_on_stop(
                self._session.was_applied(self._recorded_action(call)), stop
            )
        except (SimulatorFailed, CallInterrupted) as problem:
            return await self._result(call, Interrupted(error=error, now=str(problem)), start_time)
        if was_applied is False:
            return await self.act(call, budget_status, stop)
        outcome = "The simulator did it; what it answered is lost." if was_applied else ""
        return await self._result(call, Interrupted(error=error, now=outcome), start_time)

    async def close(self, ended: bool) -> None:
        """Let go; with `ended`, tell the simulator."""
        if ended:
            await self._session.end()
        await self._client.close()

    def _check(self, call: ToolCall) -> ToolCall:
        return self._tools.check(call)

    def _error_text(self, call: ToolCall, problem: Exception) -> str:
        unknown = " Whether it was done is unknown."
        if isinstance(problem, SimulatorFailed):
            return f"{problem}{unknown if problem.done is None else ''}"
        return f"{problem}{unknown}" if isinstance(problem, CallInterrupted) else ""

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        if self._tools.find(call.name) is not None:
            return await cancel_on_stop(self._step(call), stop)
        if call.name == EVALUATION_CALL:
            return await self._score(budget_status)
        finished = finish(budget_status, self._task.budget.minimum_steps)
        if finished.finished:
            await self._session.finish()
        return finished

    async def _step(self, call: ToolCall) -> Observation:
        if self._session.is_over(call.id):
            return Failed(error="The episode is over.")
        answer = await self._session.step(self._recorded_action(call))
        return SimulatorAnswer(
            success=answer.success,
            text=answer.text,
            finished=answer.done,
            more=_limit_fields(answer.fields),
        )

    async def _score(self, budget_status: BudgetStatus) -> Observation:
        state = self._session.state
        if not (budget_status.budget_spent or state.finished or state.done):
            return Failed(error="There is no tool 'eval'; finish ends the episode.")
        return SimulatorScore(overall_score=(await self._session.score()).overall_score)

    def _recorded_action(self, call: ToolCall) -> RecordedAction:
        tool = self._tools.find(call.name)
        assert tool is not None
        return RecordedAction(call.id, tool.name, self._tools.arguments(call))


def _limit_fields(
    fields: Mapping[str, bool | int | float | str],
) -> dict[str, bool | int | float | str]:
    """As many fields, and as long ones, as an evaluator's metrics: each step keeps them."""
    return {
        name[:_NAME]: value[:_TEXT] if isinstance(value, str) else value
        for name, value in islice(fields.items(), _FIELDS)
    }


def build_environment(setup: EnvironmentSetup) -> SimulatorEnvironment:
    """The environment; nobody is asked before `open`."""
    settings = setup.task.http
    key = bearer_key(settings.api_key_env)
    client = SimulatorClient(settings.url, settings.seconds, settings.patience_seconds, key)
    return SimulatorEnvironment(
        setup.spec, setup.task, setup.characters, client, scores=settings.score
    )


def bearer_key(variable: str) -> str:
    """What is sent as a bearer token; empty for none."""
    return os.environ.get(variable, "").strip() if variable else ""  # a file's newline is none
