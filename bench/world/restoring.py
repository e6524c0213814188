"""Brings a big workspace back from its shadow repository, and compares every byte.

While it is recorded a log of 100 MB grows and 40,000 files appear in new folders. Two states are
brought back: the last, taken at a mark with everything at rest, which must be equal; and one from
the middle of a step, where large files were only noted: what is not brought back must be named.
"""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.world.building import big, differences, paths
from bench.world.snapshots import taken

from houston_daemon.hosts.snapshots.shadow_repository import ShadowRepository
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot

LOG_BYTES = 100_000_000
BURST = 40_000
GROW = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as log:
    while log.tell() < int(sys.argv[2]):
        log.write(b"epoch loss accuracy and other things that a program tells\\n" * 3000)
        time.sleep(0.002)
"""
FLOOD = """
import pathlib, sys
top = pathlib.Path(sys.argv[1])
for number in range(int(sys.argv[2])):
    folder = top / f"shard-{number // 40:04d}" / "items"
    if number % 40 == 0:
        folder.mkdir(parents=True)
    (folder / f"{number}.json").write_text('{"item": %d}' % number)
"""


def measure(folder: Path, files: int, megabytes: int) -> dict[str, Any]:
    """Aim: nothing is missing or different that was not named."""
    workspace = folder / "workspace"
    began = time.perf_counter()
    big(workspace, files, megabytes)
    built = time.perf_counter() - began
    found = asyncio.run(_measure(folder, workspace))
    return {"files": files, "megabytes": megabytes, "built_s": round(built, 1), **found}


async def _measure(folder: Path, workspace: Path) -> dict[str, Any]:
    shadow = ShadowRepository(workspace, folder / "shadow")
    before, first = await _timed(shadow.take("before"))
    log = workspace / "runs" / "train.log"
    growing = _start(GROW, log, LOG_BYTES)
    flooding = _start(FLOOD, workspace / "burst", BURST)
    meanwhile = []
    while flooding.poll() is None or growing.poll() is None:
        meanwhile.append((await _timed(shadow.take("meanwhile", mark=True)))[1])
    if growing.wait() or flooding.wait():
        raise RuntimeError("the programs that change the workspace failed")
    await asyncio.sleep(0.1)
    last, marked = await _timed(shadow.take("last", mark=True))
    whole = await _back(shadow, last.commit, workspace, folder / "whole")
    part = await _early(shadow, before.commit, workspace, folder / "early")
    await shadow.close()
    unnamed = whole["unnamed"] + part["unnamed"]
    return {
        "files_at_the_end": sum(1 for _ in paths(workspace)),
        "burst_files": BURST,
        "log_bytes": log.stat().st_size,
        "first_snapshot_s": first,
        "snapshots_while_it_changed_s": meanwhile,
        "last_snapshot_s": marked,
        "shadow_mb": round(taken(folder / "shadow") / 1e6, 1),
        "restored": whole,
        "restored_from_before": part,
        "aim": "nothing missing, nothing different, and what was not kept is named",
        "met": not unnamed and not whole["named"],
    }


async def _back(
    shadow: ShadowRepository, commit: str, workspace: Path, into: Path
) -> dict[str, Any]:
    """The state of a mark in an empty folder: equal to the workspace."""
    named, seconds = await _timed(asyncio.to_thread(restore_snapshot, shadow.folder, commit, into))
    found = differences(workspace, into)
    lost = set(named)
    return {
        "seconds": seconds,
        "named": len(named),
        **{kind: len(which) for kind, which in found.items()},
        "unnamed": sorted({path for which in found.values() for path in which} - lost)[:20],
    }


async def _early(
    shadow: ShadowRepository, commit: str, workspace: Path, into: Path
) -> dict[str, Any]:
    """The state before the burst, which was no mark: its files have not changed since."""
    named, seconds = await _timed(asyncio.to_thread(restore_snapshot, shadow.folder, commit, into))
    found = differences(workspace, into)
    since = [path for path in found["missing"] if path.startswith(("burst/", "runs/train.log"))]
    missing = set(found["missing"]) - set(since)
    return {
        "seconds": seconds,
        "named": len(named),
        "missing": len(missing),
        "newer": len(since),
        "beyond": len(found["beyond"]),
        "different": len(found["different"]),
        "unnamed": sorted(missing.union(found["beyond"], found["different"]) - set(named))[:20],
    }


def _start(program: str, where: Path, size: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", program, str(where), str(size)])


async def _timed(work: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    result = await work
    return result, round(time.perf_counter() - began, 2)
