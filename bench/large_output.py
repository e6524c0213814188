"""What 50 MB of output costs: how long the worker's and the console's event loops stand still.

A command prints 50 MB into a real terminal of a real workstation (tmux, bubblewrap); then the agent
looks at the output in every way it has, and an annotator does in the console. A probe on the same
loop wakes every millisecond: `stall_ms` is its worst delay, `cpu_ms` the most processor time that
the loop's thread took between two wakes (which other programs on the machine do not change), and
`idle_stall_ms` the worst delay of a loop with nothing to do, in the same run.

    python bench/large_output.py [--megabytes 50]
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from houston_console.app.console_app import HoustonConsole
from houston_console.console_command import tune_garbage_collector
from houston_console.panes.terminals_pane import TerminalView
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.records import RolloutSpec, TaskRecord, TerminalSpan, ToolCall, ToolResult
from houston_shared.task import BudgetSettings, Task, WorkspaceSettings
from tests.console.home_builder import HomeBuilder

AIM_MS = 50
ROLLOUT = "r1"
FLOOD = """
import sys
kind, size = sys.argv[1], int(sys.argv[2])
plain = b"".join(b"line %08d of what a program printed, nothing else\\n" % i for i in range(20000))
rough = bytes(range(256)) * 40 + b"\\x1b[31mred\\x1b[0m \\xff\\xfe \\xed\\xa0\\x80 <real_user>\\n"
rough += b"".join(b"\\rprogress %3d%%" % i for i in range(101)) + "\\u202e\\n".encode()
rough = rough.replace(b"\\x1b]", b"\\x1b").replace(b"\\x90", b"").replace(b"\\x0e", b"")
block = {"plain": plain, "rough": rough, "long lines": b"m" * 1_000_000 + b"\\n"}[kind]
out, left = sys.stdout.buffer, size
while left > 0:
    out.write(block[:left])
    left -= len(block)
out.flush()
"""
KINDS = ("plain", "rough", "long lines")


class Probe:
    """How long a loop stood still."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.wall = max(self.wall, time.perf_counter() - wall - 0.001)
            self.cpu = max(self.cpu, time.thread_time() - cpu)

    def figures(self) -> dict[str, float]:
        """The worst so far, in milliseconds."""
        return {"stall_ms": round(self.wall * 1000, 1), "cpu_ms": round(self.cpu * 1000, 1)}


@contextlib.asynccontextmanager
async def probed() -> AsyncIterator[Probe]:
    """A probe on this loop for as long as the block runs."""
    probe = Probe()
    task = asyncio.create_task(probe.run())
    await asyncio.sleep(0.01)
    probe.wall = probe.cpu = 0.0
    try:
        yield probe
    finally:
        task.cancel()


async def figures(act: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """Seconds of `act`, and how long the loop stood still meanwhile."""
    begun = time.perf_counter()
    async with probed() as probe:
        await act()
    return {"seconds": round(time.perf_counter() - begun, 2), **probe.figures()}


Worker = tuple[dict[str, Any], list[TerminalSpan], list[str]]


async def worker(folder: Path, kind: str, size: int) -> Worker:
    """The agent's side: figures, what its terminals printed, and what it saw."""
    workspace = folder / "task" / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "flood.py").write_text(FLOOD)
    (folder / "home").mkdir(exist_ok=True)
    budget = BudgetSettings(command_seconds=240)
    task = Task(name="flood", workspace=WorkspaceSettings(source="workspace"), budget=budget)
    record = TaskRecord(name="flood", folder=str(folder / "task"), definition="", instructions="")
    spec = RolloutSpec(
        rollout=ROLLOUT, task=record, engine="script:x", engine_settings={},
        host_root=str(folder / "root"), hidden=(str(folder / "home"),),
    )  # fmt: skip
    environment = make_environment(spec, task)
    await environment.open()
    budget_status = BudgetStatus(1, 10, 10_000.0, 0)
    results: list[ToolResult] = []

    async def act(name: str, **arguments: Any) -> None:
        call = environment.check(ToolCall(id=f"1.{len(results)}", name=name, arguments=arguments))
        results.append(await environment.act(call, budget_status, Stop()))

    found: dict[str, Any] = {}
    closed = []

    async def close() -> None:
        closed.append(await environment.close_step(1))

    try:
        await act("run_command", command="true", session_id="main")
        await close()
        flood = f"python3 flood.py '{kind}' {size}"
        for what, name, arguments in (
            ("run_command", "run_command", {"command": flood, "session_id": "main"}),
            ("get_session_output", "get_session_output",
             {"session_id": "main", "start_lines": 2000, "end_lines": 0}),
            ("get_session_recent_output", "get_session_recent_output",
             {"session_id": "main", "seconds": 600}),
            ("into a file", "run_command",
             {"command": f"{flood} > flood.txt; echo made", "session_id": "main"}),
            ("open_file", "open_file", {"path": "flood.txt"}),
            ("search_file", "search_file", {"search_term": "00019999", "path": "flood.txt"}),
        ):  # fmt: skip
            found[what] = await figures(lambda: act(name, **arguments))  # noqa: B023
            found[what] |= {"characters": len(results[-1].text), "success": results[-1].success}
        found["close_step"] = await figures(close)
        found["cut_is_declared"] = "not shown" in results[1].text
        spans = list(closed[-1].spans)
        log = folder / "root" / "rollouts" / ROLLOUT / "terminals" / "main"
        kept = b"".join(part.read_bytes() for part in sorted(log.glob("log.*")))
        found["all_bytes_in_the_log"] = complete(kept, kind, size)
    finally:
        await environment.close(ended=True)
    return found, spans, [one.text for one in results[1:4]]


def complete(log: bytes, kind: str, size: int) -> bool:
    """Whether the log holds everything that was printed; a terminal writes \\n as \\r\\n."""
    made = subprocess.run([sys.executable, "-c", FLOOD, kind, str(size)], capture_output=True)
    printed = made.stdout.replace(b"\n", b"\r\n")
    at = log.find(printed[:4000])
    same = hashlib.sha256(log[at : at + len(printed)]).digest() == hashlib.sha256(printed).digest()
    return at >= 0 and same


async def console(folder: Path, spans: list[TerminalSpan], seen: list[str]) -> dict[str, Any]:
    """The annotator's side: the same terminal on the screen, steps with what the agent saw of it.

    seen: texts of observations as they came through the door; a context of 100,000 tokens holds
    about fourteen of them. A thought of 1 MB in one line stands for what no door cuts.
    """
    found: dict[str, Any] = {}
    with HomeBuilder(folder / "watched") as builder:
        builder.start(ROLLOUT, "flood", host_root=str(folder / "root"))
        for step in range(1, 15):
            text = seen[step % len(seen)]
            builder.whole(ROLLOUT, step, "I look.", texts=(text,), spans=tuple(spans))
        builder.whole(ROLLOUT, 15, "m" * 1_000_000, texts=("ok",))
        loaded = LoadedConfiguration(Configuration(), builder.home, "bench")
        app = HoustonConsole(loaded, ROLLOUT, folder / "state")
        tune_garbage_collector()
        async with app.run_test(size=(160, 50)) as pilot:
            await app.refresh_from_store()
            await pilot.pause()

            async def look() -> None:
                await app.watch_screen.terminals.poll()
                await pilot.pause()

            async def press(*keys: str) -> None:
                await pilot.press(*keys)
                await app.watch_screen.trajectory.transcript.settle()
                await pilot.pause()

            found["idle"] = await figures(lambda: asyncio.sleep(1))
            found["terminal"] = await figures(look)
            found["terminal_lines"] = app.query_one(TerminalView).line_count()
            found["inspector"] = await figures(lambda: press("v", "2", "escape"))
            found["a line of 1 MB"] = await figures(lambda: press("enter"))
            found["unfold all"] = await figures(lambda: press("z", "g"))
            found["pages"] = await figures(lambda: press("pagedown", "pagedown", "pageup"))
    return found


async def measure(folder: Path, kind: str, size: int) -> dict[str, Any]:
    """Both sides of one kind of output."""
    place = folder / kind.replace(" ", "-")
    idle = await figures(lambda: asyncio.sleep(1))
    found, spans, seen = await worker(place, kind, size)
    return {
        "kind": kind,
        "idle_stall_ms": idle["stall_ms"],
        "worker": found,
        "console": await console(place, spans, seen),
    }


async def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=50)
    size = parser.parse_args().megabytes * 1_000_000
    with tempfile.TemporaryDirectory(prefix="houston-bench-") as folder:
        rows = [await measure(Path(folder), kind, size) for kind in KINDS]
    result = {
        "bytes": size,
        "aim_ms": AIM_MS,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "results": rows,
    }
    text = json.dumps(result, indent=2)
    (Path(__file__).parent / "results" / "large_output.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    asyncio.run(main())
