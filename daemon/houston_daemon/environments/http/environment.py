"""http as the loop sees it: a simulator's tools, its answers, its score.

The simulator may be away, slow, wrong or restarted at any moment: while a rollout starts or goes on
it is paused for a person, in a step it is an observation.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from itertools import islice

from houston_daemon.environments import door
from houston_daemon.environments.foreign.tools import ForeignTools
from houston_daemon.environments.http import catalog
from houston_daemon.environments.http.client import Client, SimulatorFailed
from houston_daemon.environments.http.observations import Finish, Scored, Seen
from houston_daemon.environments.http.session import Session
from houston_daemon.environments.http.state import Taken
from houston_daemon.environments.interruption import BrokenOff, unless_stopped
from houston_daemon.environments.observation import Failed, Interrupted, Observation
from houston_daemon.environments.observing import observed, too_early
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.result import result_since
from houston_shared.records import Call, Intent, Result, RolloutSpec
from houston_shared.secret_values import redact
from houston_shared.task import Task

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
        self._client = Client(settings.url, settings.seconds, settings.patience_seconds, key)
        self._session = Session(spec, self._client, task.settings)
        self._tools = ForeignTools(catalog.OWN, (), task.tools)
        self.tools: Sequence[ToolSpec] = ()
        self.brief = ""

    async def open(self, begun: bool = False) -> None:
        """Begin an episode, or go on. Raises NeedsPerson while the simulator is away."""
        await self._session.open(begun)
        state = self._session.state
        self._tools = ForeignTools(catalog.OWN, catalog.offered(state.start), self._task.tools)
        self.tools = self._tools.tools
        self.brief, _ = door.cut(door.readable(redact(state.start.text)), self._characters)

    def check(self, call: Call) -> Call:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        if self._task.http.score and call.name == SCORE and not call.arguments and not call.error:
            return call
        return self._tools.check(call)

    def deadline(self, call: Call) -> float:
        """Nothing here sleeps."""
        return 0.0

    async def act(self, call: Call, standing: Standing, stop: Stop) -> Result:
        """Run one call; what goes wrong is an observation."""
        begun = time.monotonic()
        call = self.check(call)
        return await self._result(call, await self._observe(call, standing, stop), begun)

    async def recover(self, intent: Intent, standing: Standing, stop: Stop) -> Result:
        """What the simulator did is not done again: where it tells, the call is run or found."""
        begun, call = time.monotonic(), self.check(intent.call)
        foreign = self._tools.find(call.name)
        if call.error or foreign is None or self._session.state.start.repeatable:
            return await self.act(call, standing, stop)
        error = "The daemon went down during the action."
        try:
            done = await unless_stopped(self._session.was_done(self._taken(call)), stop)
        except (SimulatorFailed, BrokenOff) as problem:
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

    async def _result(self, call: Call, observation: Observation, begun: float) -> Result:
        return await result_since(begun, call, observation, self._characters)

    async def _observe(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        return await observed(call, lambda: self._do(call, standing, stop), _words, log)

    async def _do(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        if self._tools.find(call.name) is not None:
            return await unless_stopped(self._step(call), stop)
        if call.name == SCORE:
            return await self._score(standing)
        error = too_early(standing, self._task.budget.minimum_steps)
        if error:
            return Finish(success=False, error=error, finished=False)
        await self._session.finish()
        return Finish(finished=True)

    async def _step(self, call: Call) -> Observation:
        if self._session.is_over(call.id):
            return Failed(error="The episode is over.")
        answer = await self._session.step(self._taken(call))
        return Seen(
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
        return Scored(overall_score=(await self._session.score()).overall_score)

    def _taken(self, call: Call) -> Taken:
        tool = self._tools.find(call.name)
        assert tool is not None
        return Taken(call.id, tool.name, self._tools.arguments(call))


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
    return f"{problem} Whether it was done is unknown." if isinstance(problem, BrokenOff) else ""
