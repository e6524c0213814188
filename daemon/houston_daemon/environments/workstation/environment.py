"""The workstation as the loop sees it: checks a call, runs it, and gives a typed result.

Every action goes through one table to the module that knows it. What goes wrong is an observation.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.observing import failed, inside
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.workstation import closing, interrupted
from houston_daemon.environments.workstation.catalog import ACTIONS, catalog
from houston_daemon.environments.workstation.command import actions as command
from houston_daemon.environments.workstation.evaluation.evaluator import Evaluation
from houston_daemon.environments.workstation.families import Family
from houston_daemon.environments.workstation.files.confine import GONE, PathRefused
from houston_daemon.environments.workstation.hosts import away, everywhere
from houston_daemon.environments.workstation.hosts.choosing import ALL, without_host
from houston_daemon.environments.workstation.hosts.place import Place, Places
from houston_daemon.environments.workstation.result import result
from houston_daemon.environments.workstation.state import StateFile
from houston_daemon.environments.workstation.system import actions as system_actions
from houston_daemon.environments.workstation.system import doing as system
from houston_daemon.hosts.errors import HostAway, TerminalBusy, TerminalDead, TerminalMissing
from houston_daemon.hosts.limits import Hit
from houston_daemon.hosts.protocol import Host
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.records import Call, Intent, Result
from houston_shared.task import Task

log = logging.getLogger(__name__)

_LONGEST_ERROR = 500
_FREEING = (
    "A large file that create_file replaces by an empty one frees its space; commands and"
    " snapshots need some."
)


class Workstation:
    """Terminals, files, an evaluator and patience, for one rollout. See `protocol.Environment`."""

    brief = ""

    def __init__(
        self,
        task: Task,
        places: Places,
        state: StateFile,
        *,
        source: Path | None,
        evaluation: Evaluation,
        characters: int,
        families: Sequence[Family] = (),
        arrival: Callable[[], Awaitable[tuple[str, ...]]],
        here: Host | None = None,
    ) -> None:
        """arrival: what the agent is told with its first observation, once the world is made.
        here: this machine, where no host of the rollout is, for what must be done beside it.
        """
        self._task = task
        self._places = places
        self._here = here
        self._state = state
        self._source = source
        self._evaluation = evaluation
        self._characters = characters
        self._arrival = arrival
        self._families = {action: family for family in families for action in family.actions}
        self._catalog = catalog(task)
        self.tools: Sequence[ToolSpec] = self._catalog.tools

    async def open(self, begun: bool = False) -> None:
        """Make the world, or find it again; the first snapshot is the workspace as it was given.

        begun: the rollout has steps already. Raises HoustonError when its workspace is gone.
        """
        if self._here is not None:
            await self._here.prepare(None)
        for place in self._places:
            await place.host.prepare(self._source, begun)
        if not self._state.load():
            for place in self._places:
                begun_with = await place.host.snapshots.take("start", mark=True)
                place.state().told = begun_with.commit
            self._state.now.notes = await self._arrival()
            point("worker.world.before")
            await asyncio.to_thread(self._state.save)
        for place in self._places:
            place.sessions.open()

    def check(self, call: Call) -> Call:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        return self._catalog.check(call)

    def deadline(self, call: Call) -> float:
        """Unix time at which a sleep would end if it began now; 0 for other calls."""
        call = self._catalog.check(call)
        if call.error or call.name != "sleep":
            return 0.0
        return time.time() + self._sleep_seconds(call)

    async def act(self, call: Call, standing: Standing, stop: Stop) -> Result:
        """Run one call; see `protocol.Environment.act`."""
        begun = time.monotonic()
        call = self._catalog.check(call)
        self._state.now.closing = None
        observation = await self._observe(call, standing, stop)
        self._state.now.last_action = "think" if call.name == "think" else ""
        met = await self._places.limits_met()
        return await asyncio.to_thread(self._result, call, observation, begun, met)

    async def recover(self, intent: Intent, standing: Standing, stop: Stop) -> Result:
        """The result of a call that was about to run when the worker ended."""
        call = self._catalog.check(intent.call)
        if call.error:
            return await self.act(call, standing, stop)
        begun = time.monotonic()
        self._state.now.closing = None
        observation: Observation
        if call.name == "sleep":
            observation = await system.sleep_on(intent, self._sleep_seconds(call), stop)
        else:
            place = self._places.of(call.arguments)
            observation = await interrupted.observation(call, place)
        self._state.now.last_action = ""
        met = await self._places.limits_met()
        return await asyncio.to_thread(self._result, call, observation, begun, met)

    async def close_step(self, step: int) -> Closing:
        """Take the step's snapshot and the terminals' spans; the same again for the same step."""
        closed = await closing.close_step(self._places, self._state.now, step)
        await asyncio.to_thread(self._state.save)
        return closed

    async def close(self, ended: bool) -> None:
        """Let go; with `ended`, also end the rollout's terminals."""
        for place in self._places:
            await place.sessions.close()
            if ended:
                await place.host.destroy_terminals()
            await place.host.close()
        if self._here is not None:
            await self._here.close()

    async def _observe(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        if call.error:
            return Failed(error=call.error)
        place = self._places.of(call.arguments)
        try:
            return await self._do(call, standing, stop)
        except HostAway as problem:
            return await away.observation(call, place, problem)
        except TerminalMissing:
            name = call.arguments.get("session_id")
            return Failed(error=f"There is no session {name}; run_command opens one.")
        except (TerminalBusy, TerminalDead, PathRefused) as problem:
            return await self._failed(place, str(problem))
        except HoustonError as problem:
            return await self._failed(place, failed(call, problem))
        except OSError as problem:
            log.exception("%s", call.name)
            why = problem.strerror or "no reason was given"
            return await self._failed(place, f"{call.name} failed: {why}.")
        except Exception:  # noqa: BLE001 an exception in a tool is an observation
            return await self._failed(place, inside(call, log))

    async def _failed(self, place: Place, error: str) -> Failed:
        """Words for the agent: nothing of where the host keeps things."""
        host, workspace = place.host, place.host.workspace
        with contextlib.suppress(HostAway):
            if not await host.present():
                return Failed(error=GONE)
        if host.inside != str(workspace):
            error = error.replace(str(workspace), host.inside)
            error = error.replace(str(workspace.parent), "[the host]")
        return Failed(error=error[:_LONGEST_ERROR])

    async def _do(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        arguments = without_host(call.arguments, ACTIONS[call.name])
        place = self._places.of(call.arguments)
        if isinstance(arguments, command.CommandAction):
            if call.arguments.get("host") == ALL:
                return await everywhere.act(list(self._places), arguments, stop)
            return await place.commands.act(arguments, stop)
        if isinstance(arguments, system_actions.SystemAction):
            return await self._system(call, standing, stop)
        family = self._families.get(type(arguments), place.files)
        return await family.act(arguments, stop)

    async def _system(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        match call.name:
            case "think":
                return system.think(self._state.now.last_action)
            case "sleep":
                running = await self._places.running()
                return await system.sleep(self._sleep_seconds(call), stop, running)
            case "eval":
                return await self._evaluation.run(standing, stop)
            case _:
                return system.finish(standing, self._task.budget.minimum_steps)

    def _result(
        self, call: Call, observation: Observation, begun: float, met: Sequence[Hit]
    ) -> Result:
        """Save what the call changed, then say what it found: also where the disk is full, for
        looking, freeing space and `finish` need none."""
        try:
            self._state.save()
        except OSError as problem:
            log.warning("the state is not saved: %s", problem)
            met = [*met, Hit("disk", f"{problem.strerror}. {_FREEING}")]
        seconds = round(time.monotonic() - begun, 6)
        return result(call, observation, self._characters, seconds, met)

    def _sleep_seconds(self, call: Call) -> float:
        return min(float(call.arguments["sleep_time"]), self._task.budget.sleep_seconds)
