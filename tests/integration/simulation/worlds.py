"""A simulated world as the loop drives it, without a daemon; `again` is what a restart finds."""

import copy
import uuid
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.simulation.scienceworld_environment import ScienceWorldSimulator
from houston_daemon.environments.simulation.simulated_world import SimulatorTimeouts
from houston_daemon.environments.simulation.simulation_environment import Simulation
from houston_daemon.environments.simulation.textworld_environment import TextWorldSimulator
from houston_daemon.hosts.process_table import MARK_VARIABLE
from houston_shared.records import CallIntent, RolloutSpec, ToolCall, ToolResult
from houston_shared.task import LoadedTask, load_task

SIMULATORS = {"scienceworld": ScienceWorldSimulator, "textworld": TextWorldSimulator}


def task_of(folder: Path, name: str, settings: str = "", head: str = "") -> LoadedTask:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.toml").write_text(
        f'name = "t"\ninstructions = "Act."\nenvironment = "{name}"\n{head}\n[{name}]\n{settings}\n'
    )
    return load_task(folder)


class Played:
    """One rollout's world."""

    def __init__(self, folder: Path, name: str, settings: str = "", seed: int = 0) -> None:
        self.loaded = task_of(folder / "task", name, settings)
        self.name = name
        self.spec = RolloutSpec(
            rollout=f"r-{uuid.uuid4().hex[:8]}",
            task=self.loaded.record(),
            engine="script:x",
            engine_settings={},
            host_root=str(folder / "host"),
            seed=seed,
        )
        self.folder = folder / "host" / "rollouts" / self.spec.rollout
        self.log = self.folder / f"{name}.jsonl"
        self.budget_status = BudgetStatus(3, 10, 900.0, 0)
        self.environment = self._made()
        self._calls = 0

    def _made(self) -> Simulation:
        made = SIMULATORS[self.name]()
        patience = SimulatorTimeouts(turn=6.0)
        return Simulation(made, self.spec, self.loaded.task, 6_000, patience)

    async def open(self) -> "Played":
        await self.environment.open()
        return self

    def branch(self, step: int) -> "Played":
        """A sibling that shares the steps up to and with `step`."""
        other = copy.copy(self)
        changes = {"rollout": f"{self.spec.rollout}-b", "parent": self.spec.rollout}
        other.spec = msgspec.structs.replace(self.spec, **changes, parent_step=step)
        other.folder = self.folder.with_name(other.spec.rollout)
        other.log = other.folder / self.log.name
        other.environment = other._made()
        return other

    async def again(self) -> None:
        await self.environment.close(ended=False)
        self.environment = self._made()
        await self.environment.open(begun=True)

    async def __call__(self, name: str, **arguments: Any) -> ToolResult:
        self._calls += 1
        call = self.environment.check(
            ToolCall(id=f"{self._calls}.0", name=name, arguments=arguments)
        )
        return await self.environment.act(call, self.budget_status, Stop())

    async def act(self, action: str) -> ToolResult:
        return await self("act", action=action)

    async def recovered(self, action: str) -> ToolResult:
        """The newest call, as a worker finds it that came after one that died."""
        call = ToolCall(id=f"{self._calls}.0", name="act", arguments={"action": action})
        return await self.environment.recover(CallIntent(call=call), self.budget_status, Stop())

    @property
    def pid(self) -> int:
        child = self.environment.world.child
        assert child is not None
        return child.pid

    def processes(self) -> list[int]:
        """Everything that runs for the rollout: simulator, Java, what they started."""
        return processes_of(self.spec.rollout)


def processes_of(rollout: str) -> list[int]:
    found, mark = [], f"{MARK_VARIABLE}={rollout}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
