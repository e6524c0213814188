"""The workstation as the loop sees it: checks a call, runs it, and gives a typed result.

Every action goes through one table to the module that knows it. What goes wrong is an observation.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.workstation import closing, interrupted
from houston_daemon.environments.workstation.catalog import catalog
from houston_daemon.environments.workstation.command import actions as command
from houston_daemon.environments.workstation.command.family import CommandActions
from houston_daemon.environments.workstation.command.sessions import Sessions
from houston_daemon.environments.workstation.evaluation.evaluator import Evaluation
from houston_daemon.environments.workstation.families import Family
from houston_daemon.environments.workstation.files.confine import GONE, PathRefused
from houston_daemon.environments.workstation.files.family import FileActions
from houston_daemon.environments.workstation.result import result
from houston_daemon.environments.workstation.state import StateFile
from houston_daemon.environments.workstation.system import actions as system_actions
from houston_daemon.environments.workstation.system import doing as system
from houston_daemon.hosts.errors import TerminalBusy, TerminalDead, TerminalMissing
from houston_daemon.hosts.limits import Hit
from houston_daemon.hosts.protocol import Host
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.records import Call, Intent, Result
from houston_shared.task import Task

log = logging.getLogger(__name__)

_LONGEST_ERROR = 500


class Workstation:
    """Terminals, files, an evaluator and patience, for one rollout. See `protocol.Environment`."""

    brief = ""

    def __init__(
        self,
        task: Task,
        host: Host,
        state: StateFile,
        *,
        source: Path | None,
        commands: CommandActions,
        files: FileActions,
        sessions: Sessions,
        evaluation: Evaluation,
        characters: int,
        families: Sequence[Family] = (),
        arrival: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        """arrival: what the agent is told with its first observation, once the world is made."""
        self._task = task
        self._host = host
        self._state = state
        self._source = source
        self._commands = commands
        self._files = files
        self._sessions = sessions
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
        await self._host.prepare(self._source, begun)
        if not self._state.load():
            begun_with = await self._host.snapshots.take("start", mark=True)
            self._state.now.told = begun_with.commit
            self._state.now.notes = self._arrival()
            point("worker.world.before")
            await asyncio.to_thread(self._state.save)
        self._sessions.open()

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
        met = await self._host.limits_met()
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
            observation = await interrupted.observation(call, self._commands, self._files)
        self._state.now.last_action = ""
        met = await self._host.limits_met()
        return await asyncio.to_thread(self._result, call, observation, begun, met)

    async def close_step(self, step: int) -> Closing:
        """Take the step's snapshot and the terminals' spans; the same again for the same step."""
        touched = self._files.take_touched()
        closed = await closing.close_step(
            self._host, self._sessions, self._state.now, step, touched
        )
        await asyncio.to_thread(self._state.save)
        return closed

    async def close(self, ended: bool) -> None:
        """Let go; with `ended`, also end the rollout's terminals."""
        await self._sessions.close()
        if ended:
            await self._host.destroy_terminals()
        await self._host.close()

    async def _observe(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        if call.error:
            return Failed(error=call.error)
        try:
            return await self._do(call, standing, stop)
        except TerminalMissing:
            name = call.arguments.get("session_id")
            return Failed(error=f"There is no session {name}; run_command opens one.")
        except (TerminalBusy, TerminalDead, PathRefused) as problem:
            return self._failed(str(problem))
        except HoustonError as problem:
            return self._failed(f"{call.name} failed: {problem.cause} {problem.effect}".rstrip())
        except OSError as problem:
            log.exception("%s", call.name)
            return self._failed(f"{call.name} failed: {problem.strerror or 'no reason was given'}.")
        except Exception:  # an exception in a tool is an observation
            log.exception("%s", call.name)
            return self._failed(
                f"{call.name} failed inside Houston; the log of the rollout says why."
            )

    def _failed(self, error: str) -> Failed:
        """Words for the agent: nothing of where the host keeps things."""
        workspace = self._host.workspace
        if not workspace.is_dir():
            return Failed(error=GONE)
        if self._host.inside != str(workspace):
            error = error.replace(str(workspace), self._host.inside)
            error = error.replace(str(workspace.parent), "[the host]")
        return Failed(error=error[:_LONGEST_ERROR])

    async def _do(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, command.CommandAction):
            return await self._commands.act(arguments, stop)
        if isinstance(arguments, system_actions.SystemAction):
            return await self._system(call, standing, stop)
        family = self._families.get(type(arguments), self._files)
        return await family.act(arguments, stop)

    async def _system(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        match call.name:
            case "think":
                return system.think(self._state.now.last_action)
            case "sleep":
                running = await self._sessions.running()
                return await system.sleep(self._sleep_seconds(call), stop, running)
            case "eval":
                return await self._evaluation.run(standing, stop)
            case _:
                return system.finish(standing, self._task.budget.minimum_steps)

    def _result(
        self, call: Call, observation: Observation, begun: float, met: Sequence[Hit]
    ) -> Result:
        """Save what the call changed, then say what it found."""
        self._state.save()
        seconds = round(time.monotonic() - begun, 6)
        return result(call, observation, self._characters, seconds, met)

    def _sleep_seconds(self, call: Call) -> float:
        return min(float(call.arguments["sleep_time"]), self._task.budget.sleep_seconds)
