"""A program that uses up what there is is stopped, the agent hears of it, and nothing is left."""

import asyncio
import contextlib
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from houston_daemon.environments.workstation.command_observations import CommandOutput
from houston_daemon.environments.workstation.workstation_environment import workstation_result
from houston_daemon.hosts import process_table
from houston_daemon.hosts.guard import control_groups
from houston_daemon.hosts.host_protocol import TerminalDead
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.resource_limits import ResourceLimits
from houston_shared.records import ToolCall
from tests.security.limit_cases import CASES, LIMITS, Case
from tests.support.tiers import sampled

HERE = control_groups.find_cgroup_folders().mechanism
CLEAR = "rm -rf -- * ; kill -9 $(jobs -p) 2>/dev/null; echo still here"

BOTH = ("groups", "watchdog") if HERE != "watchdog" else ("watchdog",)
SAMPLE = (
    "a shell that starts on and on",
    "8 GB of memory",
    "a sparse file of 100 GB",
    "many files",
)
"""Of each kind of limit one."""
RUNS = [
    pytest.param(
        mechanism, name, marks=() if name in SAMPLE and mechanism == BOTH[0] else pytest.mark.slow
    )
    for name, case in CASES.items()
    for mechanism in BOTH
    # The disk is measured alike; and without groups a fork bomb would be the machine's.
    if mechanism == "groups"
    or ((case.kind != "workspace" or len(BOTH) == 1) and not case.groups_only)
]


@pytest.fixture(params=sampled(BOTH, 1))
async def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalHost]:
    if request.param == "watchdog":
        nowhere = control_groups.CgroupFolders("watchdog", {})
        monkeypatch.setattr(control_groups, "find_cgroup_folders", lambda: nowhere)
    made = LocalHost(
        tmp_path / "root", "r1", sandbox="bubblewrap", network=False, hidden=(), limits=LIMITS
    )
    await made.prepare(None)
    yield made
    await made.destroy_terminals()
    await made.close()


async def _until_met(host: LocalHost, kind: str) -> list[str]:
    said: list[str] = []
    for _ in range(400):
        said += [hit.words for hit in await host.take_limit_hits()]
        if any(words.startswith(f"resource limit: {kind}") for words in said):
            return said
        await asyncio.sleep(0.1)
    return said


@pytest.mark.parametrize(("host", "name"), RUNS, indirect=["host"])
async def test_it_is_stopped_and_the_session_goes_on(name: str, host: LocalHost) -> None:
    case = CASES[name]
    note = control_groups.find_groups(host.folder.parents[1] / "limits" / "r1.json")
    assert note is not None
    terminal = await host.terminal("main", create=True)
    start = await terminal.run(case.command)
    said = await _shown(case, host, terminal, start)
    assert "resource limit" in said or case.says in said
    terminal = await host.terminal("main", create=True)
    for _ in range(100):
        if not (await terminal.status()).busy:
            break
        await terminal.signal("KILL")
        await asyncio.sleep(0.1)
    for _ in range(20):  # what is being ended now may take the next command along, or its shell
        terminal = await host.terminal("main", create=True)
        with contextlib.suppress(TerminalDead):
            start = await terminal.run(CLEAR)
            status = await terminal.wait(20, asyncio.Event())
            if status.exit_code == 0:
                break
        await asyncio.sleep(0.5)
    assert (status.alive, status.exit_code) == (True, 0)
    assert "still here" in await terminal.lines(start)
    marked = (host.folder.parents[1] / "prepared" / "r1").read_text()
    await host.destroy_terminals()
    assert not note.pids() and not any(door.exists() for door in note.procs_files)
    assert not process_table.kill_marked(marked)


async def _shown(case: Case, host: LocalHost, terminal: object, start: int) -> str:
    """What an agent that waits for the command, and looks again, is told."""
    if case.kind in ("", "file size"):
        status = await terminal.wait(20, asyncio.Event())  # type: ignore[attr-defined]
        lines = await terminal.lines(start)  # type: ignore[attr-defined]
        output = CommandOutput(
            session_id="main",
            running=status.busy,
            exit_code=status.exit_code,
            output="\n".join(lines),
        )
        call = ToolCall(id="1", name="run_command", arguments={})
        return workstation_result(call, output, 5_000, 0.1).text
    said = await _until_met(host, case.kind)
    assert any(case.kind in words for words in said), said
    return "\n".join(said)


async def test_an_evaluator_counts_too(host: LocalHost) -> None:
    """It runs what the agent wrote."""
    eat = "x = []\nfor i in range(128): x.append(b'1' * (64 << 20)); time.sleep(0.05)"
    done = await host.spawn(["python3", "-c", f"import time\n{eat}"], seconds=60, writable=False)
    assert done.exit_code not in (0, None)
    assert await _until_met(host, "memory")


async def test_the_other_rollouts_are_not_touched(host: LocalHost, tmp_path: Path) -> None:
    other = LocalHost(
        tmp_path / "root",
        "r2",
        sandbox="bubblewrap",
        network=False,
        hidden=(),
        limits=ResourceLimits(),
    )
    await other.prepare(None)
    quiet = await other.terminal("main", create=True)
    await quiet.run("sleep 60")
    loud = await host.terminal("main", create=True)
    await loud.run("for i in {1..400}; do sleep 1000 & done; sleep 3")
    await _until_met(host, "processes")
    assert (await quiet.status()).busy
    assert not await other.take_limit_hits()
    await other.destroy_terminals()
    await other.close()


async def test_the_next_command_does_not_pay_for_what_was_left_behind(host: LocalHost) -> None:
    terminal = await host.terminal("main", create=True)
    await terminal.run("for i in {1..140}; do sleep 1000 & done 2>/dev/null")
    assert not (await terminal.wait(20, asyncio.Event())).busy
    # It wants more than there is, again and again, and lives with being refused.
    program = (
        "import os, time\nfor i in range(60):\n"
        "    try: os.fork() or (time.sleep(4), os._exit(0))\n"
        "    except BlockingIOError: time.sleep(0.1)\n"
        "time.sleep(3); print('here', 'still')"
    )
    start = await terminal.run(f'python3 -c "{program}"')
    status = await terminal.wait(20, asyncio.Event())
    (said,) = [hit.words for hit in await host.take_limit_hits()]
    assert said.startswith("resource limit: processes. ")
    assert said.endswith("; what was left behind was ended.")
    assert "here still" in await terminal.lines(start)
    assert (status.alive, status.exit_code) == (True, 0)


async def test_rollouts_may_not_use_more_together_than_the_machine_has(
    tmp_path: Path, host: LocalHost
) -> None:
    """Each is within its own limit; the one that uses most is ended, and the other goes on."""
    most = dataclasses.replace(LIMITS, together=350 << 20)
    hold = "python3 -c \"import time\nx = b'1' * ({} << 20); print('holds', flush=True)\n{}\""
    hosts = [
        LocalHost(tmp_path / "both", f"r{n}", sandbox="bubblewrap", network=False, hidden=(),
                  limits=most)
        for n in range(2)
    ]  # fmt: skip
    try:
        terminals = []
        for one in hosts:
            await one.prepare(None)
            terminals.append(await one.terminal("main", create=True))
        await terminals[0].run(hold.format(120, "time.sleep(600)"))
        await terminals[0].wait(2, asyncio.Event())
        assert not await hosts[0].take_limit_hits(), "it is within both limits"
        start = await terminals[1].run(hold.format(260, "time.sleep(600)"))
        said = await _until_met(hosts[1], "memory")
        assert "all rollouts of this machine" in " ".join(said).lower()
        status = await terminals[1].wait(20, asyncio.Event())
        assert status.alive and not status.busy, await terminals[1].lines(start)
        assert (await terminals[0].status()).busy, "the smaller one goes on"
        assert not await hosts[0].take_limit_hits()
    finally:
        for one in hosts:
            await one.destroy_terminals()
            await one.close()
    for _, groups, _ in os.walk("/sys/fs/cgroup"):  # passes over groups that end meanwhile
        assert _around(tmp_path / "both") not in groups, "the group around both is removed"


def _around(root: Path) -> str:
    where = hashlib.sha256(os.fsencode(root / "limits")).hexdigest()[:12]
    return f"houston-all-{where}"


async def test_shared_memory_of_a_session_has_a_size(tmp_path: Path) -> None:
    small = dataclasses.replace(LIMITS, shared=16 << 20)
    host = LocalHost(
        tmp_path / "root", "r1", sandbox="bubblewrap", network=False, hidden=(), limits=small
    )
    await host.prepare(None)
    try:
        terminal = await host.terminal("main", create=True)
        start = await terminal.run("head -c 40M /dev/zero >/dev/shm/big; stat -c %s /dev/shm/big")
        await terminal.wait(20, asyncio.Event())
        text = " ".join(await terminal.lines(start))
        assert "No space left on device" in text
        assert str(16 << 20) in text
        assert not await host.take_limit_hits(), "nobody is ended for it"
    finally:
        await host.destroy_terminals()
        await host.close()


async def test_groups_are_found_again_and_told_once(tmp_path: Path) -> None:
    """A worker was killed: the next one finds the same groups, and tells no refusal twice."""
    if HERE == "watchdog":
        pytest.skip("no control groups may be made here")
    settings = {"sandbox": "bubblewrap", "network": False, "hidden": (), "limits": LIMITS}
    first = LocalHost(tmp_path / "root", "r1", **settings)
    await first.prepare(None)
    terminal = await first.terminal("main", create=True)
    await terminal.run("for i in {1..400}; do sleep 1000 & done")
    assert await _until_met(first, "processes")
    await terminal.wait(10, asyncio.Event())
    await first.take_limit_hits()
    await first.close()
    second = LocalHost(tmp_path / "root", "r1", **settings)
    await second.prepare(None)
    assert not await second.take_limit_hits()
    note = control_groups.find_groups(tmp_path / "root" / "limits" / "r1.json")
    assert note is not None and (await second.terminal("main")).name == "main"
    assert note.pids()
    await second.destroy_terminals()
    await second.close()
    assert not any(door.exists() for door in note.procs_files)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_an_ordinary_user_is_held_without_groups() -> None:
    place = Path(tempfile.mkdtemp(prefix="houston-limits-", dir="/tmp"))
    os.chown(place, 65534, 65534)
    script = (
        "import asyncio, os, sys; from pathlib import Path\n"
        "from houston_daemon.hosts.local_host import LocalHost\n"
        "from tests.security.limit_cases import CASES, LIMITS\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "os.environ.update(PATH='/usr/bin:/bin', HOME='/nonexistent')\n"
        "async def main():\n"
        "    h = LocalHost(Path(sys.argv[1]), 'r', sandbox='bubblewrap', network=False,\n"
        "                  hidden=(), limits=LIMITS)\n"
        "    await h.prepare(None)\n"
        "    try:\n"
        "        await bomb(h)\n"
        "    finally:\n"
        "        await h.destroy_terminals()\n"
        "        await h.close()\n"
        "async def bomb(h):\n"
        "    t = await h.terminal('main', create=True)\n"
        "    at = await t.run(CASES['a fork bomb'].command)\n"
        "    await t.wait(20, asyncio.Event())\n"
        "    text = ' '.join(await t.lines(at))\n"
        "    at = await t.run('echo on')\n"
        "    await t.wait(20, asyncio.Event())\n"
        "    print('temporarily unavailable' in text, await t.lines(at))\n"
        "asyncio.run(main())\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, str(place)], capture_output=True, text=True, timeout=90
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    assert done.stdout.startswith("True"), done.stdout + done.stderr
