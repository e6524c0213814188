"""Terminals outlive the daemon, gaps of the log are said, marks are neither seen nor forged."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.hosts import process_table, rollout_workspace
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.terminals import terminal_start
from houston_daemon.hosts.terminals.local_terminal import LocalTerminal
from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from tests.support.station import alive

from .conftest import MakeHost, finish, kill_tmux, until

_CHILD = """
import asyncio, sys
from pathlib import Path
from houston_daemon.hosts.local_host import LocalHost

async def main():
    host = LocalHost(Path(sys.argv[1]), "r1", sandbox="bubblewrap", network=False, hidden=())
    await host.prepare(None)
    terminal = await host.terminal("main", create=True)
    print(await terminal.run(sys.argv[2]), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def _killed_while_running(root: Path, command: str) -> int:
    """Start `command` in another process of ours and kill that; the log offset of its start."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, str(root), command, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    start = int(await asyncio.wait_for(child.stdout.readline(), 30))
    child.send_signal(signal.SIGKILL)
    await child.wait()
    return start


async def test_a_terminal_is_found_after_a_kill_with_what_it_printed_meanwhile(
    make_host: MakeHost, tmp_path: Path
) -> None:
    command = "for i in 1 2 3; do echo tick $i; sleep 0.3; done; (exit 9)"
    start = await _killed_while_running(tmp_path / "root", command)
    await asyncio.sleep(0.4)
    host = make_host()
    found = await host.terminal("main")
    assert found.state.command == command
    status = await found.wait(20, asyncio.Event())
    assert (status.alive, status.busy, status.exit_code) == (True, False, 9)
    assert await found.lines(start) == ["tick 1", "tick 2", "tick 3"]
    assert (await finish(found, "echo on"))[1] == ["on"]


async def test_a_command_that_ended_while_nobody_looked_has_its_code(
    make_host: MakeHost, tmp_path: Path
) -> None:
    start = await _killed_while_running(tmp_path / "root", "sleep 0.1; (exit 3)")
    log = TerminalLog(tmp_path / "root" / "rollouts" / "r1" / "terminals" / "main")
    await until(lambda: log.read(start, log.size()).endswith(b"\x07"))
    status = (await make_host().terminals())[0]
    assert (status.name, status.busy, status.exit_code) == ("main", False, 3)


async def test_a_command_noted_but_never_handed_over_is_not_called_running(
    make_host: MakeHost, terminal: LocalTerminal
) -> None:
    terminal.state.command, terminal.state.running = "never sent", True
    terminal.state.nonces = terminal_start.MarkNonces.fresh()
    terminal.state.sent_at = terminal.log.size()
    terminal_start.save_terminal_state(terminal.folder, terminal.state)
    found = await make_host().terminal("main")
    status = await found.status()
    assert (status.busy, status.exit_code) == (False, None)
    assert (await finish(found, "echo on"))[1] == ["on"]


async def test_a_killed_log_writer_is_replaced_and_the_gap_is_said(
    terminal: LocalTerminal,
) -> None:
    await finish(terminal, "echo before")
    start = await terminal.run("sleep 0.5; (exit 6)")
    os.kill(terminal.state.sink.pid, signal.SIGKILL)
    status = await terminal.wait(20, asyncio.Event())
    assert status.exit_code == 6
    _, lines = await finish(terminal, "echo after")
    assert lines == ["after"]
    everything = await terminal.lines(0)
    said = [n for n, line in enumerate(everything) if "[houston: the log stopped" in line]
    assert len(said) == 1
    assert everything.index("before") < said[0] < everything.index("after")
    assert len(list(terminal.folder.glob("log.*"))) == 2
    assert terminal.log.read(0, start).endswith(b"\x07")


async def test_an_end_mark_lost_in_the_gap_does_not_leave_the_terminal_busy(
    terminal: LocalTerminal,
) -> None:
    await terminal.run("sleep 0.3; (exit 8)")
    os.kill(terminal.state.sink.pid, signal.SIGKILL)
    await asyncio.sleep(0.6)  # it ends while nothing is logged
    status = await terminal.wait(20, asyncio.Event())
    assert (status.busy, status.exit_code) == (False, 8)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 300 MB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a small disk")
async def test_a_log_leaves_the_disk_room_and_goes_on_when_there_is_some(small: Path) -> None:
    host = LocalHost(small, "r1", sandbox="bubblewrap", network=False, hidden=())
    try:
        await host.prepare(None)
        terminal = await host.terminal("main", create=True)
        other = await host.terminal("other", create=True)
        start = await terminal.run(
            "echo first; until [ -e go ]; do sleep 0.1; done; echo lost; (exit 7)"
        )
        (small / "filler").write_bytes(b"x" * 150_000_000)
        status = await terminal.status()
        assert status.busy and status.unlogged == "the host's disk is nearly full"
        await asyncio.wait_for(other.run("touch go"), 60)  # runs, so room can be made
        await until((host.workspace / "go").exists)
        await asyncio.sleep(0.5)
        assert (await terminal.status()).busy
        assert not process_table.is_alive(terminal.state.sink)
        (small / "filler").unlink()
        status = await terminal.wait(10, asyncio.Event())
        assert (status.busy, status.exit_code, status.unlogged) == (False, 7, "")
        lines = await terminal.lines(start)
        assert lines[0] == "first" and "lost" not in lines
        assert "[houston: the log stopped" in "\n".join(lines)
        assert (await finish(terminal, "echo on"))[1] == ["on"]
    finally:
        await host.destroy_terminals()
        await host.close()


async def test_destroyed_terminals_leave_no_process(make_host: MakeHost) -> None:
    host = make_host(rollout="gone")
    await host.prepare(None)
    terminal = await host.terminal("main", create=True)
    await finish(terminal, "setsid sleep 1000 & (trap '' HUP TERM; exec sleep 1001) & disown -a")
    await terminal.run("sleep 1002")
    token = terminal.state.token.encode()
    assert _carrying(token)
    await host.destroy_terminals()
    await until(lambda: not _carrying(token))


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
@pytest.mark.parametrize("known", ["by this process", "by a later one"])
async def test_a_terminal_without_tmux_is_dead_and_its_shell_ended(
    sandbox: str, known: str, make_host: MakeHost
) -> None:
    host = make_host(sandbox=sandbox)
    await host.prepare(None)
    terminal = await host.terminal("main", create=True)
    await host.terminal("idle", create=True)
    command = "trap '' HUP TERM; setsid sleep 1000 & sleep 1001; sleep 1002"
    start = await terminal.run(f"echo begun; {command}")
    token = terminal.state.token.encode()
    await kill_tmux(host)
    if known == "by a later one":
        host = make_host(sandbox=sandbox)
        terminal = await host.terminal("main")
    status = await terminal.wait(10, asyncio.Event())
    assert (status.alive, status.busy, status.exit_code) == (False, False, None)
    assert status.end == "its tmux session was ended from outside, and what ran in it was ended too"
    assert not _carrying(token)
    first, *rest = await terminal.lines(start)
    assert first == "begun"
    assert all("missing here" in line for line in rest if line), "at most the gap of its last pipe"
    assert [one.alive for one in await host.terminals()] == [False, False]
    for name in ("main", "idle"):
        again = await host.terminal(name, create=True)
        assert (await finish(again, "echo new"))[1] == ["new"]


_OPENING = """
import asyncio, sys
from pathlib import Path
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.terminals import terminal_start

async def greet(*_):
    await asyncio.sleep(0.3)
    print("up", flush=True)
    await asyncio.sleep(600)

async def main():
    host = LocalHost(Path(sys.argv[1]), "r1", sandbox=sys.argv[2], network=False, hidden=())
    await host.prepare(None)
    terminal_start._greet_shell = greet
    await host.terminal("main", create=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
@pytest.mark.parametrize("then", ["opened again", "destroyed"])
async def test_a_kill_while_a_terminal_opens_leaves_nothing(
    sandbox: str, then: str, make_host: MakeHost, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OPENING, str(root), sandbox, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await asyncio.wait_for(child.stdout.readline(), 30) == b"up\n"
    child.kill()
    await child.wait()
    left = _carrying(b"HOUSTON_TERMINAL=")
    mine = [pid for pid in left if _reads(root / "rollouts" / "r1" / "terminals", pid)]
    assert mine
    host = make_host(sandbox=sandbox)
    if then == "opened again":
        assert (await finish(await host.terminal("main", create=True), "echo on"))[1] == ["on"]
    else:
        await host.destroy_terminals()
    await until(lambda: not any(alive(pid) for pid in mine))


def _reads(folder: Path, pid: int) -> bool:
    """Whether a process has a pipe below `folder` open, as a shell of ours has."""
    try:
        links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.startswith(str(folder)) for link in links)


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
@pytest.mark.parametrize("known", ["by this process", "by a later one"])
async def test_terminals_end_when_somebody_has_removed_the_rollouts_folder(
    sandbox: str, known: str, make_host: MakeHost
) -> None:
    host = make_host(sandbox=sandbox)
    await host.prepare(None)
    terminal = await host.terminal("main", create=True)
    await terminal.run("setsid sleep 1000 & sleep 1001")
    mark = rollout_workspace.read_mark(host.folder.parents[1] / "prepared" / "r1").encode()
    assert len(_carrying(mark)) > 3, "tmux, its pane, the shell and what it runs"
    shutil.rmtree(host.folder)
    await (host if known == "by this process" else make_host(sandbox=sandbox)).destroy_terminals()
    await asyncio.sleep(0.1)
    assert not _carrying(mark)


def _carrying(token: bytes) -> list[int]:
    found = []
    for pid in process_table.list_processes():
        try:
            if token in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


SEARCHES = {
    "environment": "env",
    "variables": "set; declare -p; declare -f",
    "trace": "set -x; true; set +x",
    "trace over commands": "set -x",
    "verbose": "set -v",
    "debug trap": "trap 'echo at $BASH_COMMAND' DEBUG; true",
    "debug trap in functions too": "set -T; trap 'echo at $BASH_COMMAND' DEBUG; true",
    "history": "set -o history; history; fc -l; true",
    "command line": "cat /proc/$$/cmdline /proc/$$/environ /proc/$PPID/cmdline | tr '\\0' '\\n'",
    "files": "cat /run/houston/* ; grep -r 7771 /run /tmp /home 2>/dev/null; true",
    "return trap": "trap 'echo left $BASH_COMMAND' RETURN",
    "error trap": "trap 'echo failed $BASH_COMMAND' ERR; false",
}


async def test_a_commands_nonces_do_not_show_to_it(host: LocalHost) -> None:
    """Each search in a shell of its own, whose settings last."""
    for number, (name, search) in enumerate(SEARCHES.items()):
        terminal = await host.terminal(f"t{number}", create=True)
        nonces: list[str] = []
        for command in (search, "echo next", search):
            await finish(terminal, command)
            assert terminal.state.nonces is not None
            nonces += [terminal.state.nonces.start, terminal.state.nonces.end]
            raw = terminal.log.read(terminal.state.started_at or 0, terminal.log.size())
            # In the bytes of the command: its end mark and nothing more.
            assert raw.count(terminal.state.nonces.end.encode()) == 1, (name, raw)
        lines = "\n".join(await terminal.lines(0))
        assert not [nonce for nonce in nonces if nonce in lines], name
        assert "7771;" not in lines.replace("grep -r 7771", ""), name


async def test_no_window_shows_half_a_mark(terminal: LocalTerminal) -> None:
    await finish(terminal, "echo one")
    await finish(terminal, "echo two")
    size = terminal.log.size()
    assert terminal.state.nonces is not None
    nonce = terminal.state.nonces.end
    for cut in range(size):
        for lines in (terminal.log.lines(0, cut), terminal.log.lines(cut, size)):
            text = "\n".join(lines)
            assert "7771" not in text and "]77" not in text
            assert nonce[:8] not in text and nonce[-8:] not in text


FORGERIES = {
    "no nonce": "printf '\\033]7771;e;;0\\007'",
    "a guess": "printf '\\033]7771;e;%s;0\\007' 00000000000000000000000000000000",
    "of an earlier command": "tr -d '\\0' </dev/null; printf '\\033]7771;e;%s;0\\007' OLD",
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_forged_end_is_not_believed(
    name: str, host: LocalHost, terminal: LocalTerminal
) -> None:
    await finish(terminal, "true")
    assert terminal.state.nonces is not None
    forged = FORGERIES[name].replace("OLD", terminal.state.nonces.end)
    await terminal.run(f"{forged}; until [ -e go ]; do sleep 0.02; done; (exit 4)")
    assert (await terminal.wait(0.2, asyncio.Event())).busy
    (host.workspace / "go").touch()
    assert (await terminal.wait(10, asyncio.Event())).exit_code == 4


async def test_redirected_output_does_not_lose_the_end(terminal: LocalTerminal) -> None:
    assert (await finish(terminal, "exec 3>&1 >/tmp/out 2>&1"))[0].exit_code == 0
    assert (await finish(terminal, "echo hidden; (exit 2)"))[0].exit_code == 2
    assert (await finish(terminal, "exec >&3 2>&3; cat /tmp/out"))[1] == ["hidden"]


async def test_the_users_own_tmux_settings_change_nothing(
    make_host: MakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".tmux.conf").write_text("set -g default-command 'echo mine'\nset -g status on\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    host = make_host(rollout="own")
    await host.prepare(None)
    terminal = await host.terminal("main", create=True)
    assert (await finish(terminal, "stty size"))[1] == ["50 160"]


async def test_a_long_folder_gets_a_short_socket_and_is_found_again(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "r" * 120
    first = make_host(rollout=name)
    await first.prepare(None)
    terminal = await first.terminal("main", create=True)
    socket = Path((first.folder / "terminals" / "socket").read_text().strip())
    assert len(os.fsencode(socket)) < 100 and socket.exists()
    await finish(terminal, "kept=1")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    again = await make_host(rollout=name).terminal("main")
    assert (await finish(again, "echo $kept"))[1] == ["1"]


async def test_a_host_without_terminals_has_none(host: LocalHost) -> None:
    assert await host.terminals() == []
    await host.destroy_terminals()
