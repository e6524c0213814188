"""The http environment: a simulator's tools, its answers, its score; what a task must name."""

import logging
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from msgspec import Meta

from houston_daemon.environments import observation_boundary
from houston_daemon.environments.call_handling import (
    CallInterrupted,
    observed,
    result_since,
    too_early,
    unless_stopped,
)
from houston_daemon.environments.foreign_tools import ForeignTools, OfferedTool
from houston_daemon.environments.http.http_simulator_client import (
    Reset,
    SimulatorClient,
    SimulatorFailed,
)
from houston_daemon.environments.http.http_simulator_session import RecordedAction, SimulatorSession
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.tool_arguments import Arguments, Catalog, tool
from houston_daemon.environments.typed_observation import (
    Failed,
    Interrupted,
    Observation,
    Text,
    render,
)
from houston_shared.errors import ConfigurationError
from houston_shared.records import CallIntent, RolloutSpec, ToolCall, ToolResult
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
    return [OfferedTool(SOURCE, one.name, one.description, one.parameters) for one in start.tools]


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for an address that none is, or an evaluator that nobody runs."""
    url = task.task.http.url
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ConfigurationError(
            f"{task.file}: `http.url` is {url!r}; http needs the address of a simulator,"
            " http://HOST:PORT/…"
        )
    if task.task.evaluate.command:
        raise ConfigurationError(f"{task.file}: http runs no evaluator; the simulator scores.")


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


class EpisodeFinished(Observation, frozen=True, kw_only=True):
    """The agent ends the episode."""

    kind: ClassVar[str] = "finish"
    finished: bool


@render.register
def _(one: SimulatorAnswer) -> Text:
    over = "[the episode is over]" if one.finished else ""
    return Text(over, one.text or "(The simulator said nothing.)")


@render.register
def _(one: SimulatorScore) -> Text:
    return Text(f"overall_score: {one.overall_score:g} of 100")


@render.register
def _(one: EpisodeFinished) -> Text:
    return Text("Finished." if one.finished else f"Error: {one.error}")


log = logging.getLogger(__name__)
_FIELDS, _NAME, _TEXT = 50, 60, 500
"""Most fields of a step; most characters of a name, and of a text."""
SCORE = "eval"
"""What the loop calls at the end of a rollout that has no score; no tool of the agent."""


class HttpEnvironment:
    """A simulator for one rollout. See `protocol.Environment`."""

    def __init__(self, spec: RolloutSpec, task: Task, characters: int, key: str) -> None:
        """key: sent as a bearer token; empty for none."""
        settings = task.http
        self._task = task
        self._characters = characters
        self._client = SimulatorClient(
            settings.url, settings.seconds, settings.patience_seconds, key
        )
        self._session = SimulatorSession(spec, self._client, task.settings)
        self._tools = ForeignTools(OWN_ACTIONS, (), task.tools)
        self.tools: Sequence[ToolSpec] = ()
        self.brief = ""

    async def open(self, begun: bool = False) -> None:
        """Begin an episode, or go on. Raises NeedsPerson while the simulator is away."""
        await self._session.open(begun)
        state = self._session.state
        self._tools = ForeignTools(OWN_ACTIONS, offered_actions(state.start), self._task.tools)
        self.tools = self._tools.tools
        self.brief, _ = observation_boundary.cut(
            observation_boundary.readable(redact(state.start.text)), self._characters
        )

    def check(self, call: ToolCall) -> ToolCall:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        if self._task.http.score and call.name == SCORE and not call.arguments and not call.error:
            return call
        return self._tools.check(call)

    def deadline(self, call: ToolCall) -> float:
        """Nothing here sleeps."""
        return 0.0

    async def act(self, call: ToolCall, standing: Standing, stop: Stop) -> ToolResult:
        """Run one call; what goes wrong is an observation."""
        begun = time.monotonic()
        call = self.check(call)
        return await self._result(call, await self._observe(call, standing, stop), begun)

    async def recover(self, intent: CallIntent, standing: Standing, stop: Stop) -> ToolResult:
        """What the simulator did is not done again: where it tells, the call is run or found."""
        begun, call = time.monotonic(), self.check(intent.call)
        foreign = self._tools.find(call.name)
        if call.error or foreign is None or self._session.state.start.repeatable:
            return await self.act(call, standing, stop)
        error = "The daemon went down during the action."
        try:
            done = await unless_stopped(self._session.was_done(self._taken(call)), stop)
        except (SimulatorFailed, CallInterrupted) as problem:
            return await self._result(call, Interrupted(error=error, now=str(problem)), begun)
        if done is False:
            return await self.act(call, standing, stop)
        now = "The simulator did it; what it answered is lost." if done else ""
        return await self._result(call, Interrupted(error=error, now=now), begun)

    async def close_step(self, step: int) -> Closing:
        """Nothing changes here but the record of the session, which is on disk."""
        return Closing()

    async def close(self, ended: bool) -> None:
        """Let go; with `ended`, tell the simulator."""
        if ended:
            await self._session.end()
        await self._client.close()

    async def _result(self, call: ToolCall, observation: Observation, begun: float) -> ToolResult:
        return await result_since(begun, call, observation, self._characters)

    async def _observe(self, call: ToolCall, standing: Standing, stop: Stop) -> Observation:
        return await observed(call, lambda: self._do(call, standing, stop), _words, log)

    async def _do(self, call: ToolCall, standing: Standing, stop: Stop) -> Observation:
        if self._tools.find(call.name) is not None:
            return await unless_stopped(self._step(call), stop)
        if call.name == SCORE:
            return await self._score(standing)
        error = too_early(standing, self._task.budget.minimum_steps)
        if error:
            return EpisodeFinished(success=False, error=error, finished=False)
        await self._session.finish()
        return EpisodeFinished(finished=True)

    async def _step(self, call: ToolCall) -> Observation:
        if self._session.is_over(call.id):
            return Failed(error="The episode is over.")
        answer = await self._session.step(self._taken(call))
        return SimulatorAnswer(
            success=answer.success,
            text=answer.text,
            finished=answer.done,
            more=_bounded(answer.fields),
        )

    async def _score(self, standing: Standing) -> Observation:
        spent = not standing.steps_left or standing.seconds_left <= 0
        state = self._session.state
        if not (spent or state.finished or state.done):
            return Failed(error="There is no tool 'eval'; finish ends the episode.")
        return SimulatorScore(overall_score=(await self._session.score()).overall_score)

    def _taken(self, call: ToolCall) -> RecordedAction:
        tool = self._tools.find(call.name)
        assert tool is not None
        return RecordedAction(call.id, tool.name, self._tools.arguments(call))


def _bounded(fields: Mapping[str, bool | int | float | str]) -> dict[str, bool | int | float | str]:
    """As many fields, and as long ones, as an evaluator's metrics: each step keeps them."""
    return {
        name[:_NAME]: value[:_TEXT] if isinstance(value, str) else value
        for name, value in islice(fields.items(), _FIELDS)
    }


def _words(problem: Exception) -> str:
    if isinstance(problem, SimulatorFailed):
        known = "" if problem.done is not None else " Whether it was done is unknown."
        return f"{problem}{known}"
    return (
        f"{problem} Whether it was done is unknown." if isinstance(problem, CallInterrupted) else ""
    )
