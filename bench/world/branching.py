"""How long a branch waits for its workspace: a step's state written into a new folder.

The limit in the same run is `cp -a` of the same 50,000 files.
"""

import asyncio
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.world.building import differences, many_files

from houston_daemon.hosts.snapshots.shadow import ShadowRepository

TIMES = 3


def measure(folder: Path, files: int) -> dict[str, Any]:
    """Seconds of a restore and of a copy, medians of three, and their ratio; no aim beside it."""
    workspace = folder / "workspace"
    many_files(workspace, files)
    return asyncio.run(_measure(folder, workspace, files))


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
        named = await shadow.restore(taken.commit, target)
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
        "aim": "",
        "met": True,
    }


def _copy(workspace: Path, target: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["cp", "-a", workspace, target], check=True)
    return time.perf_counter() - began
