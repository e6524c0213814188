"""A workstation on the real local host: tmux, bubblewrap, a workspace, an evaluator."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments.environment_protocol import BudgetStatus, Environment, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_shared.records import CallIntent, RolloutSpec, TaskRecord, ToolCall, ToolResult
from houston_shared.task import BudgetSettings, Task, WorkspaceSettings
from houston_shared.task_tables import EvaluationSettings

BUDGET = BudgetSettings(
    command_seconds=20, sleep_seconds=30, input_silence_seconds=0.3, evaluations=2
)


class Station:
    """One rollout's environment; `again` is a worker that starts after this one ended."""

    def __init__(self, folder: Path, rollout: str = "r1", **task: Any) -> None:
        self.folder = folder
        task.setdefault("budget", BUDGET)
        self.task = Task(name="trial", workspace=WorkspaceSettings(source="workspace"), **task)
        record = TaskRecord(
            name="trial", folder=str(folder / "task"), definition="", instructions=""
        )
        self.spec = RolloutSpec(
            rollout=rollout,
            task=record,
            engine="script:x",
            engine_settings={},
            host_root=str(folder / "root"),
            hidden=(str(folder / "home"),),
        )
        self.workspace = folder / "root" / "rollouts" / rollout / "workspace"
        self.environment: Environment = make_environment(self.spec, self.task)
        self._ids = itertools.count(1)
        self.step = 5
        self.evaluations = 0

    async def again(self) -> None:
        """What a restart does: the worker's memory is gone, the world is not."""
        await self.environment.close(ended=False)
        self.environment = make_environment(self.spec, self.task)
        await self.environment.open()

    @property
    def budget_status(self) -> BudgetStatus:
        return BudgetStatus(self.step, 10, 1_000.0, self.evaluations)

    def call(self, name: str, **arguments: Any) -> ToolCall:
        return ToolCall(id=f"{self.step}.{next(self._ids)}", name=name, arguments=arguments)

    async def __call__(
        self, name: str, *, stop: Stop | None = None, **arguments: Any
    ) -> ToolResult:
        """Run one action as the loop does."""
        call = self.environment.check(self.call(name, **arguments))
        result = await self.environment.act(call, self.budget_status, stop or Stop())
        assert len(result.text) < 40_000
        return result

    async def recover(self, name: str, *, deadline: float = 0.0, **arguments: Any) -> ToolResult:
        """The result of a call that was cut off by a restart."""
        intent = CallIntent(call=self.call(name, **arguments), deadline=deadline)
        return await self.environment.recover(intent, self.budget_status, Stop())


MakeStation = Callable[..., Awaitable[Station]]


@pytest.fixture
async def make_station(tmp_path: Path) -> AsyncIterator[MakeStation]:
    """Makes opened stations; their terminals end with the test."""
    source = tmp_path / "task" / "workspace"
    source.mkdir(parents=True)
    (source / "notes.txt").write_text("first\nsecond\nthird\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "houston.db").write_text("secret")
    made: list[Station] = []

    async def make(evaluator: str = "", **task: Any) -> Station:
        (tmp_path / "task" / "evaluate.py").write_text(evaluator)
        if evaluator:
            task.setdefault(
                "evaluate", EvaluationSettings(command="python3 evaluate.py", seconds=20)
            )
        station = Station(tmp_path, rollout=f"r{len(made) + 1}", **task)
        made.append(station)
        await station.environment.open()
        return station

    yield make
    for station in made:
        await station.environment.close(ended=True)


@pytest.fixture
async def station(make_station: MakeStation) -> Station:
    return await make_station()
