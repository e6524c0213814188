"""What a terminal command costs through the workstation, against a bare `bash -c` in the same run.

The workstation is the real one: arguments checked, tmux, bubblewrap, marks in the byte stream, the
screen read and rendered. Bare and ours take turns, so that what else the machine does meets both.
A second figure adds the end of the step: snapshot of the workspace and the terminals' spans.
"""

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.durable.machine import spread

from houston_daemon.environments.environment_protocol import BudgetStatus, Environment, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_shared.records import RolloutSpec, TaskRecord, ToolCall
from houston_shared.task import Task, WorkspaceSettings

COUNT = 200
COMMANDS = {
    "nothing": "true",
    "40 ms of work": "for ((i = 0; i < 10000; i++)); do :; done",
    "200 lines": "seq 200",
}
STANDING = BudgetStatus(1, 10, 10_000.0, 0)


def measure(folder: Path) -> dict[str, Any]:
    """Milliseconds of each command, ours and bare, and their ratio; no aim stands beside it."""
    return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> dict[str, Any]:
    environment = _workstation(folder)
    await environment.open()
    try:
        await _ours(environment, "true")
        rows = {name: await _turns(environment, text) for name, text in COMMANDS.items()}
    finally:
        await environment.close(ended=True)
    return {"count": COUNT, "commands": rows, "aim": "", "met": True}


def _workstation(folder: Path) -> Environment:
    (folder / "task" / "workspace").mkdir(parents=True)
    (folder / "home").mkdir()
    task = Task(name="bench", workspace=WorkspaceSettings(source="workspace"))
    record = TaskRecord(name="bench", folder=str(folder / "task"), definition="", instructions="")
    spec = RolloutSpec(
        rollout="r1", task=record, engine="script:x", engine_settings={},
        host_root=str(folder / "root"), hidden=(str(folder / "home"),),
    )  # fmt: skip
    return make_environment(spec, task)


async def _turns(environment: Environment, command: str) -> dict[str, Any]:
    bare: list[float] = []
    ours: list[float] = []
    closing: list[float] = []
    for number in range(COUNT):
        bare.append(_bare(command))
        ours.append(await _ours(environment, command))
        began = time.perf_counter()
        await environment.close_step(number + 1)
        closing.append(1e3 * (time.perf_counter() - began))
    plain, through = spread(bare), spread(ours)
    return {
        "bare_ms": plain,
        "workstation_ms": through,
        "ratio": round(through["p50"] / plain["p50"], 2),
        "beyond_bare_ms": round(through["p50"] - plain["p50"], 2),
        "end_of_step_ms": spread(closing),
    }


def _bare(command: str) -> float:
    began = time.perf_counter()
    subprocess.run(["bash", "-c", command], stdout=subprocess.DEVNULL, check=True)
    return 1e3 * (time.perf_counter() - began)


async def _ours(environment: Environment, command: str) -> float:
    """Milliseconds of one command through the workstation."""
    arguments = {"command": command, "session_id": "main"}
    began = time.perf_counter()
    call = environment.check(ToolCall(id="1.1", name="run_command", arguments=arguments))
    result = await environment.act(call, STANDING, Stop())
    took = 1e3 * (time.perf_counter() - began)
    if not result.success:
        raise RuntimeError(f"{command}: {result.text}")
    return took
