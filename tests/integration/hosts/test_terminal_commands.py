"""Commands in terminals: what they print and how they end is exact, whatever they are."""

import asyncio
import hashlib
from typing import Literal

import pytest

from houston_daemon.hosts.host_protocol import TerminalBusy, TerminalDead, TerminalMissing
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.terminals.local_terminal import LocalTerminal
from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from houston_shared.errors import HoustonError
from tests.support.station import process_state

from .conftest import MakeHost, finish, runs, until


@pytest.fixture(params=["bubblewrap", "none"])
async def either(request: pytest.FixtureRequest, make_host: MakeHost) -> LocalTerminal:
    host = make_host(sandbox=request.param)
    await host.prepare(None)
    return await host.terminal("main", create=True)


COMMANDS = {
    "output": ("echo hello", 0, ["hello"]),
    "two lines": ("echo a; echo b >&2", 0, ["a", "b"]),
    "no line feed at the end": ("printf abc", 0, ["abc"]),
    "failure": ("false", 1, []),
    "a pipe's last code": ("false | (exit 4)", 4, []),
    "return ends the file, not the terminal": ("return 7; echo never", 7, []),
    "break outside a loop": ("break; echo on", 0, None),
    "unbalanced quote": ("echo 'open", 2, None),
    "unfinished loop": ("for i in 1 2; do", 2, None),
    "unknown program": ("no-such-program", 127, None),
    "here document with tabs": ("cat <<X\na\tb\n\tc\nX", 0, ["a\tb", "\tc"]),
    "percent, hash and quotes": (
        """printf '%s\\n' '#{pane_id} %H "x" \\ $HOME'""",
        0,
        ['#{pane_id} %H "x" \\ $HOME'],
    ),
    "several lines": ("x=1\nif [ $x = 1 ]; then\n  echo one\nfi", 0, ["one"]),
    "unicode": ("echo 'Grüße, 世界 🚀'", 0, ["Grüße, 世界 🚀"]),
    "a shell that ends": ("(exit 200)", 200, []),
    "progress bar": ("printf '10%%\\r50%%\\r100%%\\n'", 0, ["100%"]),
    "colours": ("printf '\\033[31mred\\033[0m\\n'", 0, ["red"]),
    "input is the terminal": ("test -t 0 && test -t 1 && test -t 2", 0, []),
    "a changed prompt does not show": ("PS1='(venv) '; PS2='> '", 0, []),
    "our lines are not in the history": ("history | grep -c houston", 1, ["0"]),
}


async def test_a_command_ends_with_its_code_and_its_lines(either: LocalTerminal) -> None:
    """In one shell: none of them changes what the next one prints."""
    for name, (command, code, expected) in COMMANDS.items():
        status, lines = await finish(either, command)
        assert status.exit_code == code, name
        if expected is not None:
            assert lines == expected, name


async def test_200_exit_codes_in_a_row_are_right(terminal: LocalTerminal) -> None:
    codes = [(await finish(terminal, f"(exit {n % 256})"))[0].exit_code for n in range(200)]
    assert codes == [n % 256 for n in range(200)]


async def test_the_shell_keeps_its_state_between_commands(terminal: LocalTerminal) -> None:
    await finish(terminal, "cd /tmp; declare -A m=([a]=1); f() { echo f:$1; }; export E=2")
    _, lines = await finish(terminal, "pwd; echo ${m[a]}; f x; printenv E")
    assert lines == ["/tmp", "1", "f:x", "2"]


async def test_20_mb_arrive_whole(terminal: LocalTerminal, host: LocalHost) -> None:
    source = host.workspace / "big.txt"
    source.write_bytes(b"".join(b"%09d %s\n" % (n, b"x" * 54) for n in range(320_000)))
    start = await terminal.run("cat big.txt")
    status = await terminal.wait(60, asyncio.Event())
    assert status.exit_code == 0 and status.log_bytes - start > 20_000_000
    log = terminal.log.read(start, start + len(expected := _as_printed(source.read_bytes())))
    assert hashlib.sha256(log).digest() == hashlib.sha256(expected).digest()
    lines = await terminal.lines(start)
    assert len(lines) == 320_000 and lines[-1].startswith("000319999")


def _as_printed(data: bytes) -> bytes:
    """The terminal writes a carriage return before each line feed."""
    return data.replace(b"\n", b"\r\n")


async def test_binary_output_is_logged_byte_for_byte(
    terminal: LocalTerminal, host: LocalHost
) -> None:
    data = bytes(range(256)) * 400
    (host.workspace / "raw").write_bytes(data)
    start = await terminal.run("stty -opost; cat raw; stty opost")
    await terminal.wait(30, asyncio.Event())
    assert data in terminal.log.read(start, terminal.log.size())
    status, lines = await finish(terminal, "echo still here")
    assert (status.exit_code, lines) == (0, ["still here"])


async def test_long_lines_and_long_commands_are_not_cut(terminal: LocalTerminal) -> None:
    _, lines = await finish(terminal, "echo " + "y" * 6000)
    assert lines == ["y" * 6000]
    body = "\n".join(f"n={n}" for n in range(14_000)) + "\necho $n"
    assert len(body) > 100_000
    _, lines = await finish(terminal, body)
    assert lines == ["13999"]


async def test_a_busy_terminal_refuses_and_a_wait_ends_nothing(terminal: LocalTerminal) -> None:
    await terminal.run("sleep 60; echo never")
    await runs(terminal, ["sleep"])
    with pytest.raises(TerminalBusy, match="sleep 60"):
        await terminal.run("echo other")
    assert (await terminal.wait(0.05, asyncio.Event())).busy
    stop = asyncio.Event()
    waiting = asyncio.create_task(terminal.wait(60, stop))
    asyncio.get_running_loop().call_soon(stop.set)
    assert (await waiting).busy
    assert await terminal.signal("INT") == ["sleep"]
    assert (await terminal.wait(10, asyncio.Event())).exit_code == 130


FOREGROUND = {
    "a program": ("sleep 60; echo never", ["sleep"]),
    "a pipeline": ("sleep 60 | sleep 61", ["sleep", "sleep"]),
    "a loop of programs": ("while :; do sleep 60; done", ["sleep"]),
    "a loop without programs": ("while :; do :; done", []),
}


@pytest.mark.parametrize("signal", ["INT", "KILL", "TERM"])
async def test_a_signal_ends_the_command_and_never_the_shell(
    signal: Literal["INT", "KILL", "TERM"], either: LocalTerminal
) -> None:
    await finish(either, "kept=yes; sleep 300 & background=$!")
    for name, (command, expected) in FOREGROUND.items():
        start = await either.run(command)
        await runs(either, expected)
        assert await either.signal(signal) == expected, name
        status = await either.wait(10, asyncio.Event())
        assert not status.busy, name
        if signal != "TERM":  # after TERM the shell may reach its next line before it is stopped
            assert status.exit_code != 0, name
            assert "never" not in await either.lines(start), name
        status, lines = await finish(either, "echo $kept; kill -0 $background && echo alive")
        assert lines[-2:] == ["yes", "alive"], name


@pytest.mark.parametrize("odd", ["set -u; unset PWD", "alias builtin=false . =false"])
async def test_an_odd_shell_runs_the_next_command(odd: str, terminal: LocalTerminal) -> None:
    await finish(terminal, odd)
    status, lines = await finish(terminal, "echo on; (exit 3)")
    assert (status.exit_code, lines) == (3, ["on"])


async def test_a_line_that_the_shell_refuses_is_an_end_with_its_words(
    terminal: LocalTerminal,
) -> None:
    """Whatever it was made to refuse: the next command is told so at once."""
    await finish(terminal, "readonly __houston_flags; set -u; unset __houston_flags PWD")
    await finish(terminal, "enable -n .")
    status, lines = await finish(terminal, "echo never", seconds=5)
    assert status.exit_code != 0 and "never" not in lines


async def test_a_shell_that_stopped_itself_can_be_ended(either: LocalTerminal) -> None:
    await either.run("sleep 0.1; suspend -f; echo never")
    await until(lambda: process_state(either.state.shell.pid) == "T")
    await either.signal("KILL")
    assert not (await either.wait(10, asyncio.Event())).busy
    assert (await finish(either, "echo on"))[1] == ["on"]


async def test_ctrl_c_typed_at_a_program_ends_it_and_keeps_the_session(
    either: LocalTerminal,
) -> None:
    program = 'import time; print("up", flush=True); time.sleep(60)'
    start = await either.run(f"python3 -c '{program}'; echo never")
    await until(lambda: b"up" in either.log.read(start, either.log.size()))
    await either.type_text("\x03")
    assert (await either.wait(10, asyncio.Event())).exit_code == 130
    assert "never" not in await either.lines(start)
    assert (await finish(either, "echo on"))[1] == ["on"]


async def test_typed_text_answers_a_prompt(either: LocalTerminal) -> None:
    start = await either.run("read -p 'name? ' a; echo hello $a")
    await until(lambda: b"name? " in either.log.read(start, either.log.size()))
    await either.type_text("Ada; #{x} %d\n")
    await either.wait(10, asyncio.Event())
    assert (await either.lines(start))[-1] == "hello Ada; #{x} %d"


async def test_a_nul_is_typed_like_every_other_key(terminal: LocalTerminal) -> None:
    start = await terminal.run("cat -v")
    await terminal.type_text("a\0b;\n\x04")
    assert not (await terminal.wait(10, asyncio.Event())).busy
    assert "a^@b;" in await terminal.lines(start)


async def test_text_typed_at_the_shell_is_a_command(terminal: LocalTerminal) -> None:
    start = terminal.log.size()
    await terminal.type_text("echo typed\n")
    assert (await terminal.wait(10, asyncio.Event())).exit_code == 0
    assert (await terminal.lines(start))[-1] == "typed"


async def test_background_jobs_survive_and_print(terminal: LocalTerminal) -> None:
    start = terminal.log.size()
    wait = "until [ -e {} ]; do sleep 0.02; done"
    behind = f"({wait.format('go')}; echo from behind; touch over) & disown"
    status, _ = await finish(terminal, behind)
    assert not status.busy
    await finish(terminal, f"touch go; {wait.format('over')}")
    assert "from behind" in await terminal.lines(start)


async def test_a_shell_that_exits_is_dead_and_can_be_opened_again(
    host: LocalHost, terminal: LocalTerminal
) -> None:
    await terminal.run("echo last words; exit 5")
    status = await terminal.wait(10, asyncio.Event())
    assert (status.alive, status.busy, status.exit_code) == (False, False, 5)
    with pytest.raises(TerminalDead, match="ended with exit code 5"):
        await terminal.run("echo x")
    again = await host.terminal("main", create=True)
    assert (await finish(again, "echo new"))[1] == ["new"]
    everything = await again.lines(0)
    assert "last words" in everything and "[houston: a new shell was started here]" in everything


async def test_names_are_checked_and_missing_terminals_named(
    host: LocalHost, terminal: LocalTerminal
) -> None:
    with pytest.raises(TerminalMissing, match="other"):
        await host.terminal("other")
    with pytest.raises(HoustonError, match="cannot name"):
        await host.terminal("../x", create=True)
    await terminal.close()
    with pytest.raises(TerminalMissing):
        await host.terminal("main")
    assert await host.terminals() == []
    assert TerminalLog(host.folder / "terminals" / "main").size() > 0


@pytest.mark.parametrize("mode", ["000", "644"])
async def test_an_agent_cannot_shut_itself_out_of_its_workspace(
    mode: str, host: LocalHost, terminal: LocalTerminal
) -> None:
    (host.workspace / "work").write_text("mine")
    await finish(terminal, f"chmod {mode} /workspace")
    status, lines = await finish(await host.terminal("other", create=True), "cat work")
    assert (status.exit_code, lines) == (0, ["mine"])
    await finish(terminal, f"chmod {mode} /workspace")
    done = await host.spawn(["cat", "/workspace/work"], seconds=10, writable=False)
    assert done.stdout == b"mine"


async def test_two_terminals_are_apart(host: LocalHost, terminal: LocalTerminal) -> None:
    other = await host.terminal("other", create=True)
    await terminal.run("sleep 60")
    assert (await finish(other, "echo free"))[1] == ["free"]
    assert [(s.name, s.busy) for s in await host.terminals()] == [("main", True), ("other", False)]
