"""A simulated world as the loop sees it. See `protocol.Environment`.

Its score is that of the simulator after every turn. The agent is not told: a score that it sees is
a hint that the world's own benchmark does not give.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from houston_daemon.environments.interruption import BrokenOff, unless_stopped
from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.observing import observed, too_early
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.result import result_since
from houston_daemon.environments.simulation import actions
from houston_daemon.environments.simulation.catalog import SCORE, catalog
from houston_daemon.environments.simulation.child import SimulatorFailed
from houston_daemon.environments.simulation.messages import Show
from houston_daemon.environments.simulation.observations import Acted, Looked, Possible, Scored
from houston_daemon.environments.simulation.world import Past, Patience, SimulatedWorld, WorldLost
from houston_daemon.hosts.errors import NeedsPerson
from houston_shared.errors import HoustonError
from houston_shared.records import Call, Intent, Result, RolloutSpec
from houston_shared.task import Task
from houston_shared.terminal_folder import rollout_folder

log = logging.getLogger(__name__)


class Simulator(Protocol):
    """What one kind of world adds: its program, and which world a rollout gets."""

    module: str
    """The program that is run, which calls `serve`."""

    def missing(self) -> str:
        """What this machine lacks for it, a sentence; empty when nothing."""
        ...

    def settings(self, task: Task, seed: int, folder: Path) -> dict[str, Any]:
        """What a rollout's world is made of; folder: where it may keep files."""
        ...

    def inherit(self, parent: Path, folder: Path) -> dict[str, Any]:
        """Bring what a branch needs of its parent's folder; the settings that this changes."""
        ...

    def refused(self, action: str) -> str:
        """Why an action is not offered to agents; empty when it is."""
        ...


class Simulation:
    """One world for one rollout."""

    def __init__(
        self,
        simulator: Simulator,
        spec: RolloutSpec,
        task: Task,
        characters: int,
        patience: Patience | None = None,
    ) -> None:
        self._simulator = simulator
        self._spec = spec
        self._task = task
        self._characters = characters
        self._catalog = catalog(task)
        self._folder = rollout_folder(Path(spec.host_root), spec.rollout)
        file = self._folder / f"{task.environment}.jsonl"
        self.world = SimulatedWorld(simulator.module, spec.rollout, file, patience or Patience())
        self.tools: Sequence[ToolSpec] = self._catalog.tools
        self.brief = ""

    async def open(self, begun: bool = False) -> None:
        """Make the world, or make it again. Raises NeedsPerson with what stands in the way."""
        if lacking := self._simulator.missing():
            raise self._waits(lacking)
        settings = self._simulator.settings(self._task, self._spec.seed, self._folder)
        try:
            past = await asyncio.to_thread(self._past)
            opened = await self.world.open(settings, begun, past)
        except SimulatorFailed as problem:
            raise self._waits(f"The simulator failed: {problem}.") from None
        except WorldLost as problem:
            raise self._waits(f"The world cannot be made again: {problem}.") from None
        except OSError as problem:
            raise HoustonError(
                f"The rollout's folder {self._folder} cannot be used: {problem.strerror}.",
                "The rollout cannot start.",
            ) from None
        self.brief = "\n\n".join(part for part in (opened.goal, opened.place) if part)

    def check(self, call: Call) -> Call:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        if call.name == SCORE and not call.arguments and not call.error:
            return call
        return self._catalog.check(call)

    def deadline(self, call: Call) -> float:
        """Nothing here sleeps."""
        return 0.0

    async def act(self, call: Call, standing: Standing, stop: Stop) -> Result:
        """Run one call; what goes wrong is an observation."""
        begun = time.monotonic()
        call = self.check(call)
        observation = await self._observe(call, standing, stop)
        return await result_since(begun, call, observation, self._characters)

    async def recover(self, intent: Intent, standing: Standing, stop: Stop) -> Result:
        """The same as `act`: a turn that was made and written is not made again."""
        return await self.act(intent.call, standing, stop)

    async def close_step(self, step: int) -> Closing:
        """Nothing changes but the world, whose turns are on disk."""
        return Closing()

    async def close(self, ended: bool) -> None:
        """End the simulator."""
        await self.world.close()

    async def _observe(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        return await observed(call, lambda: self._do(call, standing, stop), _words, log)

    async def _do(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        if call.name == SCORE:
            return self._spent(standing)
        return await unless_stopped(self._in_the_world(call, standing), stop)

    async def _in_the_world(self, call: Call, standing: Standing) -> Observation:
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, actions.Act):
            return await self._turn(call.id, arguments.action)
        if isinstance(arguments, actions.Finish):
            return self._finish(standing)
        if isinstance(arguments, actions.ListActions):
            return await self._possible(arguments)
        what = Show("place" if isinstance(arguments, actions.LookAround) else "inventory")
        return Looked(text="\n".join(await self.world.look(what)))

    async def _turn(self, call: str, action: str) -> Observation:
        action = " ".join(action.split())
        if why := self._simulator.refused(action):
            return Failed(error=why)
        before = self.world.before(call)
        if before is not None and before.outcome:
            return Failed(error="The task is over: nothing can be done in it. Call finish.")
        seen = await self.world.act(call, action)
        reward = round(seen.score - (before.score if before else 0.0), 6)
        over = bool(seen.outcome)
        acted = Acted(
            overall_score=seen.score,
            reward=reward,
            outcome=seen.outcome,
            turns=seen.turns,
            finished=over,
            text=seen.text,
        )
        if not (reward or over):
            return acted
        return Scored(counted=over, **msgspec.structs.asdict(acted))

    async def _possible(self, asked: actions.ListActions) -> Observation:
        words = asked.containing.lower().split()
        every = [
            one
            for one in await self.world.look(Show("actions"))
            if all(word in one.lower() for word in words) and not self._simulator.refused(one)
        ]
        shown = tuple(every[: asked.most])
        return Possible(containing=asked.containing, total=len(every), actions=shown)

    def _finish(self, standing: Standing) -> Observation:
        error = too_early(standing, self._task.budget.minimum_steps)
        if error:
            return Failed(error=error)
        return self._now("Finished.", finished=True)

    def _spent(self, standing: Standing) -> Observation:
        """The score of a rollout whose budget is spent, which the loop asks for."""
        if standing.steps_left and standing.seconds_left > 0:
            return Failed(error="There is no tool 'eval'; finish ends the task.")
        return self._now("The budget is spent.", finished=False)

    def _now(self, text: str, *, finished: bool) -> Scored:
        last = self.world.last
        return Scored(
            overall_score=last.score if last else 0.0,
            reward=0.0,
            outcome=last.outcome if last else "",
            turns=last.turns if last else 0,
            finished=finished,
            counted=True,
            text=text,
        )

    def _past(self) -> Past | None:
        """Where the world of a branch comes from, unless it has one already."""
        spec = self._spec
        name = f"{self._task.environment}.jsonl"
        if not spec.parent or (self._folder / name).is_file():
            return None
        parent = rollout_folder(Path(spec.host_root), spec.parent)
        changed = self._simulator.inherit(parent, self._folder)
        return Past(parent / name, spec.parent_step or 0, changed)

    def _waits(self, why: str) -> NeedsPerson:
        rollout = self._spec.rollout
        return NeedsPerson(
            why,
            "The rollout waits; what was done in its world is kept.",
            f"houston rollout resume {rollout}; or give it up: houston rollout cancel {rollout}",
        )


_NOT_DONE = "This was not done; it can be tried again."


def _words(problem: Exception) -> str:
    match problem:
        case BrokenOff():
            return str(problem)
        case SimulatorFailed():
            return f"The simulator failed twice: {problem}. {_NOT_DONE}"
        case WorldLost():
            return f"The world cannot be made again: {problem}. {_NOT_DONE}"
        case OSError():
            return f"The turn cannot be kept: {problem.strerror}. {_NOT_DONE}"
    return ""
