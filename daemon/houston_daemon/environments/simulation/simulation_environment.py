"""A simulated world for the agent loop: actions, free looks that take no turn, scores."""

import asyncio
import importlib.util
import shutil
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import msgspec
from msgspec import Meta

from houston_daemon.environments.call_handling import (
    CallInterrupted,
    ToolEnvironment,
    cancel_on_stop,
    early_finish_refusal,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop, Undo
from houston_daemon.environments.simulation.simulated_world import (
    SimulatedWorld,
    SimulatorTimeouts,
    WorldLost,
    WorldOrigin,
)
from houston_daemon.environments.simulation.simulator_process import SimulatorFailed
from houston_daemon.environments.simulation.simulator_protocol import Show
from houston_daemon.environments.tool_arguments import Arguments, Catalog, chosen_actions
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import EVALUATION_CALL, RolloutSpec, ToolCall
from houston_shared.task import LoadedTask, Task
from houston_shared.terminal_log_files import rollout_folder


class SimulationAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of a simulated world."""

    family: ClassVar[str] = "simulation"


class Act(SimulationAction, frozen=True, kw_only=True):
    """Do one thing in the world, in its own words."""

    name: ClassVar[str] = "act"
    action: Annotated[
        str, Meta(min_length=1, max_length=200, description="The command, e.g. open door.")
    ]


class LookAround(SimulationAction, frozen=True, kw_only=True):
    """Describe where you are; takes no turn."""

    name: ClassVar[str] = "look_around"


class Inventory(SimulationAction, frozen=True, kw_only=True):
    """List what you carry; takes no turn."""

    name: ClassVar[str] = "inventory"


class ListActions(SimulationAction, frozen=True, kw_only=True):
    """List commands that the world understands now; takes no turn."""

    name: ClassVar[str] = "list_actions"
    containing: Annotated[
        str, Meta(max_length=100, description="Only commands with these words; empty for all.")
    ] = ""
    most: Annotated[int, Meta(ge=1, le=500, description="Most commands.")] = 50


class Finish(SimulationAction, frozen=True, kw_only=True):
    """End the task with the score that it has."""

    name: ClassVar[str] = "finish"


SIMULATION_ACTIONS: tuple[type[SimulationAction], ...] = (
    Act, LookAround, Inventory, ListActions, Finish,
)  # fmt: skip


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError for names that are none, or that are missing."""
    needed = (Act.name, Finish.name)
    return Catalog(chosen_actions(task, SIMULATION_ACTIONS, task.environment, needed))


def missing(package: str, program: str = "") -> str:
    """What this machine lacks to run the simulator and how to get it; empty when it lacks nothing.

    package: what is imported; program: what must be on PATH.
    """
    if importlib.util.find_spec(package) is None:
        return f"The Python package {package} is not installed: pip install 'houston-agents[envs]'."
    if program and shutil.which(program) is None:
        return (
            f"{program.capitalize()} is not installed, and {package} runs in it: install it, for "
            "example Debian's default-jre-headless."
        )
    return ""


def check_installed(task: LoadedTask, lacking: str) -> None:
    """Raise ConfigurationError when something is lacking."""
    if lacking:
        raise ConfigurationError(
            f"The environment {task.task.environment} of {task.file} cannot run here. {lacking}"
        )


class TurnTaken(Observation, frozen=True, kw_only=True):
    """A turn that changed no score."""

    kind: ClassVar[str] = "act"
    bulk: ClassVar[tuple[str, ...]] = ("text",)
    overall_score: float
    """0 to 100, of the world as it is now."""
    reward: float
    """By how much the turn changed it."""
    outcome: str
    """`won` or `lost` when the world is over."""
    turns: int
    finished: bool
    """Whether it ends the rollout."""
    text: str


class TurnScored(TurnTaken, frozen=True, kw_only=True):
    """A turn that changed the score, or ended the world: an evaluation of the rollout."""

    kind: ClassVar[str] = "eval"
    state: str = "scored"
    counted: bool
    """Whether it is the rollout's last."""
    seconds: float = 0.0


class WorldDescription(Observation, frozen=True, kw_only=True):
    """A look that took no turn."""

    kind: ClassVar[str] = "look"
    bulk: ClassVar[tuple[str, ...]] = ("text",)
    text: str


class PossibleCommands(Observation, frozen=True, kw_only=True):
    """Commands that the world understands now."""

    kind: ClassVar[str] = "actions"
    bulk: ClassVar[tuple[str, ...]] = ("actions",)
    containing: str
    total: int
    actions: tuple[str, ...]


@render.register
def _(result: TurnTaken) -> Text:
    end = {"won": "[The task is done.]", "lost": "[The task has failed and is over.]", "": ""}
    return Text(end[result.outcome], result.text)


@render.register
def _(result: WorldDescription) -> Text:
    return Text("", result.text)


@render.register
def _(result: PossibleCommands) -> Text:
    of = f" with {result.containing!r}" if result.containing else ""
    if not result.actions:
        return Text(f"No command{of} is understood here.")
    more = result.total - len(result.actions)
    cut = f", the first {len(result.actions)}; narrow them with `containing`" if more else ""
    return Text(f"{result.total} commands{of}{cut}:", "\n".join(result.actions), "use `containing`")


_NOT_DONE = "This was not done; it can be tried again."


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


class Simulation(ToolEnvironment):
    """One world for one rollout."""

    undo: Undo = "restore"

    def __init__(
        self,
        simulator: Simulator,
        spec: RolloutSpec,
        task: Task,
        characters: int,
        patience: SimulatorTimeouts | None = None,
    ) -> None:
        super().__init__(characters, scores=True)
        self._simulator = simulator
        self._spec = spec
        self._task = task
        self._catalog = catalog(task)
        self._folder = rollout_folder(Path(spec.host_root), spec.rollout)
        file = self._folder / f"{task.environment}.jsonl"
        self.world = SimulatedWorld(
            simulator.module, spec.rollout, file, patience or SimulatorTimeouts()
        )
        self.tools = self._catalog.tools

    async def open(self, begun: bool = False) -> None:
        """Make the world, or make it again. Raises NeedsPerson with what stands in the way."""
        if lacking := self._simulator.missing():
            raise self._needs_person(lacking)
        settings = self._simulator.settings(self._task, self._spec.seed, self._folder)
        try:
            past = await asyncio.to_thread(self._branch_origin)
            opened = await self.world.open(settings, begun, past)
        except SimulatorFailed as problem:
            raise self._needs_person(f"The simulator failed: {problem}.") from None
        except WorldLost as problem:
            raise self._needs_person(f"The world cannot be made again: {problem}.") from None
        except OSError as problem:
            raise HoustonError(
                f"The rollout's folder {self._folder} cannot be used: {problem.strerror}.",
                "The rollout cannot start.",
            ) from None
        self.brief = "\n\n".join(part for part in (opened.goal, opened.place) if part)

    async def save_state(self, name: str) -> None:
        """See `environment_protocol.Environment.save_state`: what was done is copied."""
        await self.world.save(name)

    async def restore_state(self, name: str) -> None:
        """See `environment_protocol.Environment`: a new world does again what the copy has."""
        try:
            await self.world.restore(name)
        except (SimulatorFailed, WorldLost, OSError) as problem:
            raise HoustonError(
                f"The world could not be brought back: {problem}.", "The rollout cannot go on."
            ) from None

    async def close(self, ended: bool) -> None:
        """End the simulator."""
        await self.world.close()

    def _check(self, call: ToolCall) -> ToolCall:
        return self._catalog.check(call)

    def _error_text(self, call: ToolCall, problem: Exception) -> str:
        match problem:
            case CallInterrupted():
                return str(problem)
            case SimulatorFailed():
                return f"The simulator failed twice: {problem}. {_NOT_DONE}"
            case WorldLost():
                return f"The world cannot be made again: {problem}. {_NOT_DONE}"
            case OSError():
                return f"The turn cannot be kept: {problem.strerror}. {_NOT_DONE}"
        return ""

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        if call.name == EVALUATION_CALL:
            return self._spent(budget_status)
        return await cancel_on_stop(self._run_world_call(call, budget_status), stop)

    async def _run_world_call(self, call: ToolCall, budget_status: BudgetStatus) -> Observation:
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, Act):
            return await self._turn(call.id, arguments.action)
        if isinstance(arguments, Finish):
            return self._finish(budget_status)
        if isinstance(arguments, ListActions):
            return await self._list_actions(arguments)
        request = Show("place" if isinstance(arguments, LookAround) else "inventory")
        return WorldDescription(text="\n".join(await self.world.look(request)))

    async def _turn(self, call: str, action: str) -> Observation:
        action = " ".join(action.split())
        if reason := self._simulator.refused(action):
            return Failed(error=reason)
        before = self.world.before(call)
        if before is not None and before.outcome:
            return Failed(error="The task is over: nothing can be done in it. Call finish.")
        answer = await self.world.act(call, action)
        reward = round(answer.score - (before.score if before else 0.0), 6)
        over = bool(answer.outcome)
        acted = TurnTaken(
            overall_score=answer.score,
            reward=reward,
            outcome=answer.outcome,
            turns=answer.turns,
            finished=over,
            text=answer.text,
        )
        if not (reward or over):
            return acted
        return TurnScored(counted=over, **msgspec.structs.asdict(acted))

    async def _list_actions(self, call: ListActions) -> Observation:
        words = call.containing.lower().split()
        commands = [
            command
            for command in await self.world.look(Show("actions"))
            if all(word in command.lower() for word in words)
            and not self._simulator.refused(command)
        ]
        actions = tuple(commands[: call.most])
        return PossibleCommands(containing=call.containing, total=len(commands), actions=actions)

    def _finish(self, budget_status: BudgetStatus) -> Observation:
        error = early_finish_refusal(budget_status, self._task.budget.minimum_steps)
        if error:
            return Failed(error=error)
        return self._now("Finished.", finished=True)

    def _spent(self, budget_status: BudgetStatus) -> Observation:
        """The score of a rollout whose budget is spent, which the loop asks for."""
        if not budget_status.budget_spent:
            return Failed(error="There is no tool 'eval'; finish ends the task.")
        return self._now("The budget is spent.", finished=False)

    def _now(self, text: str, *, finished: bool) -> TurnScored:
        last = self.world.last
        return TurnScored(
            overall_score=last.score if last else 0.0,
            reward=0.0,
            outcome=last.outcome if last else "",
            turns=last.turns if last else 0,
            finished=finished,
            counted=True,
            text=text,
        )

    def _branch_origin(self) -> WorldOrigin | None:
        """Where the world of a branch comes from, unless it has one already."""
        spec = self._spec
        name = f"{self._task.environment}.jsonl"
        if not spec.parent or (self._folder / name).is_file():
            return None
        parent = rollout_folder(Path(spec.host_root), spec.parent)
        changed = self._simulator.inherit(parent, self._folder)
        return WorldOrigin(parent / name, spec.parent_step or 0, changed)

    def _needs_person(self, reason: str) -> NeedsPerson:
        rollout = self._spec.rollout
        return NeedsPerson(
            reason,
            "The rollout waits; what was done in its world is kept.",
            f"houston rollout resume {rollout}; or give it up: houston rollout cancel {rollout}",
        )
