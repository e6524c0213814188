"""How long a branch waits for its workspace: a step's state written into a new folder.

By the library, with `cp -a` of the same 50,000 files as the limit in the same run; and by
`houston rollout branch` on a real daemon, until the branch has closed its first own step, beside a
rollout that starts anew and copies the task's folder.
"""

import asyncio
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.world.building import differences, many_files

from houston_daemon.hosts.snapshots.shadow_repository import ShadowRepository
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from tests.support.station import Station

TIMES = 3


def measure(folder: Path, files: int) -> dict[str, Any]:
    """Seconds of a restore and of a copy, medians of three, and their ratio; no aim beside it."""
    workspace = folder / "workspace"
    many_files(workspace, files)
    found = asyncio.run(_measure(folder, workspace, files))
    return {**found, **_by_command(folder / "station", workspace), "aim": "", "met": True}


async def _measure(folder: Path, workspace: Path, files: int) -> dict[str, Any]:
    shadow = ShadowRepository(workspace, folder / "shadow")
    taken = await shadow.take("a step")
    (workspace / "later.txt").write_text("of a later step\n")
    await shadow.take("the next")
    restored: list[float] = []
    copied: list[float] = []
    target = folder / "new"
    for _ in range(TIMES):
        began = time.perf_counter()
        named = restore_snapshot(shadow.folder, taken.commit, target)
        restored.append(time.perf_counter() - began)
        found = differences(workspace, target)
        if named or found != {"missing": ["later.txt"], "beyond": [], "different": []}:
            raise RuntimeError(f"the branch is not what the step was: {named}, {found}")
        shutil.rmtree(target)
        copied.append(_copy(workspace, target))
        shutil.rmtree(target)
    await shadow.close()
    seconds, copy = statistics.median(restored), statistics.median(copied)
    return {
        "files": files,
        "restore_s": round(seconds, 2),
        "copy_s": round(copy, 2),
        "ratio": round(seconds / copy, 2),
    }


def _by_command(folder: Path, workspace: Path) -> dict[str, Any]:
    """A rollout of three steps on the same files, and a branch from its second."""
    folder.mkdir()
    station = Station(folder)
    station.start()
    try:
        task = station.task("many", files={}, budget="steps = 10")
        (task.parent / "workspace").rmdir()
        shutil.copytree(workspace, task.parent / "workspace")
        steps = [_step("echo one > a.txt"), _step("echo two > a.txt"), _step("cat a.txt")]
        began = time.perf_counter()
        (parent,) = station.rollout(task, station.script(steps))
        station.until(lambda: station.closed(parent) >= 1, 600)
        first = time.perf_counter() - began
        station.ended(parent, 600)
        began = time.perf_counter()
        (row,) = station.json("rollout", "branch", parent, "--at", "2")
        station.until(lambda: station.closed(row["rollout"]) >= 3, 600)
        branch = time.perf_counter() - began
        station.ended(row["rollout"], 600)
        if "two" not in station.steps(row["rollout"])[2]["observation"]:
            raise RuntimeError("the branch does not see what its step left")
    finally:
        station.clear()
    return {
        "start_to_first_step_s": round(first, 2),
        "branch_to_first_own_step_s": round(branch, 2),
    }


def _step(command: str) -> dict[str, Any]:
    return {"calls": [{"name": "run_command", "arguments": {"command": command}}]}


def _copy(workspace: Path, target: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["cp", "-a", workspace, target], check=True)
    return time.perf_counter() - began
