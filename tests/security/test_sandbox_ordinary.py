"""What ordinary work needs still works in the sandbox, filter and limits in place."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.resource_limits import compute_resource_limits
from houston_shared.task import SandboxSettings

WORK = {
    "a pool of processes": (
        "python3",
        "python3 -c 'import multiprocessing as m; print(sum(m.Pool(4).map(abs, range(9))))'",
        "36",
    ),
    "a manager, by a socket": (
        "python3",
        "python3 -c 'import multiprocessing as m; print(m.Manager().list([1, 2]))'",
        "[1, 2]",
    ),
    "shared memory": (
        "python3",
        "python3 -c 'from multiprocessing import shared_memory as s;"
        " x = s.SharedMemory(create=True, size=9); x.close(); x.unlink(); print(9)'",
        "9",
    ),
    "threads": (
        "python3",
        "python3 -c 'import concurrent.futures as f;"
        " print(sum(f.ThreadPoolExecutor(8).map(abs, range(9))))'",
        "36",
    ),
    "a tracer": (
        "python3",
        # PTRACE_TRACEME, as debuggers begin.
        "python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))'",
        "0",
    ),
    "git": (
        "git",
        "git init -q r && cd r && echo a >a && git add a && git -c user.name=a -c user.email=a"
        " commit -qm a && git clone -q . ../c && git -C ../c log --format=%s",
        "a",
    ),
    "a compiler": (
        "gcc",
        "printf 'int main() { return 7; }' >m.c && gcc m.c -o m && { ./m; echo $?; }",
        "7",
    ),
    "Java": ("java", "java -version 2>&1 | grep -c -i version", "1"),
    "tmux": (
        "tmux",
        "tmux -S ./t new -d 'echo inner >out; sleep 9' && sleep 0.5 && cat out; tmux -S ./t"
        " kill-server",
        "inner",
    ),
    "ssh's agent": (
        "ssh-agent",
        "eval $(ssh-agent) >/dev/null && ssh-add -l; kill $SSH_AGENT_PID",
        "The agent has no identities.",
    ),
    "pytest": (
        "pytest",
        "echo 'def test_a(tmp_path): assert tmp_path' >test_a.py && python3 -m pytest -q 2>&1"
        " | grep -o '1 passed'",
        "1 passed",
    ),
    "a virtual environment": (
        "python3",
        "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'",
        "/workspace/v",
    ),
    "numbers by many threads": (
        "python3",
        "python3 -c 'import zlib, lzma, sqlite3, ssl, ctypes; print(1)'",
        "1",
    ),
    "a job in the background and back": (
        "bash",
        "sleep 0.2 & jobs | grep -c Running; fg >/dev/null; echo $?",
        "1\n0",
    ),
}


@pytest.fixture(scope="module")
def programs() -> frozenset[str]:
    return frozenset(name for name, _, _ in WORK.values() if shutil.which(name))


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[LocalHost]:
    made = LocalHost(
        tmp_path / "root",
        "r1",
        sandbox="bubblewrap",
        network=False,
        hidden=(),
        limits=compute_resource_limits(SandboxSettings(processes=8_192), 0),
    )
    await made.prepare(None)
    yield made
    await made.destroy_terminals()
    await made.close()


async def test_ordinary_programs_work(host: LocalHost, programs: frozenset[str]) -> None:
    """One session for all of them, as an agent would have it."""
    terminal = await host.terminal("main", create=True)
    failed: dict[str, list[str]] = {}
    for name, (program, command, expected) in WORK.items():
        if program not in programs:
            continue
        folder = name.replace(" ", "-").replace("'", "").replace(",", "")
        start = await terminal.run(
            f"mkdir /workspace/{folder} && cd /workspace/{folder}\n{command}"
        )
        status = await terminal.wait(60, asyncio.Event())
        lines = await terminal.lines(start)
        wanted = expected.replace("/workspace", f"/workspace/{folder}").split("\n")
        if status.busy or lines[-len(wanted) :] != wanted:
            failed[name] = lines
    assert failed == {}
    assert not await host.take_limit_hits()


async def test_a_person_may_interrupt_and_stop_what_runs(host: LocalHost) -> None:
    """The keys go through tmux, as an annotator's do, and reach the pty inside."""
    terminal = await host.terminal("main", create=True)
    await terminal.run("sleep 600")
    await asyncio.sleep(0.3)
    await terminal.type_text("\x03")
    status = await terminal.wait(20, asyncio.Event())
    assert (status.alive, status.busy, status.exit_code) == (True, False, 130)
    await terminal.run("sleep 601")
    await asyncio.sleep(0.3)
    await terminal.type_text("\x1a")  # Ctrl-Z
    status = await terminal.wait(20, asyncio.Event())
    assert not status.busy and status.alive
    start = await terminal.run("jobs; kill %1; wait")
    await terminal.wait(20, asyncio.Event())
    assert any("Stopped" in line for line in await terminal.lines(start))
