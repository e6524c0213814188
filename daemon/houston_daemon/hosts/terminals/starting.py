"""Starts a terminal: the pane's command, its log, and the first words with the new shell.

The shell is an interactive bash whose input is a pipe of ours and whose terminal is a fresh pty
inside the sandbox (made by `script`), so that Ctrl-C, job control and TIOCSTI stay in.
"""

import asyncio
import os
import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from houston_daemon.hosts import processes
from houston_daemon.hosts.errors import TerminalDead
from houston_daemon.hosts.terminals import marks, state_file
from houston_daemon.hosts.terminals.byte_log import TerminalLog
from houston_daemon.hosts.terminals.state_file import TerminalState
from houston_daemon.hosts.terminals.tmux import Tmux
from houston_shared.faults import point

START_SECONDS = 20.0
SHELL = "PS1= exec bash --noprofile --norc --noediting -i <&9 9<&-"
"""Reads our lines from descriptor 9; `PS1=` because prompts are written by us."""

Launch = Callable[[Path, str, str], Sequence[str]]
"""(folder with the command file, shell line, token) → argument list of the pane's command."""


async def start(
    name: str, folder: Path, tmux: Tmux, log: TerminalLog, launch: Launch
) -> TerminalState:
    """Open a new session for `name`; its log goes on where an earlier one ended.

    Raises TerminalDead when the shell does not answer, with what it said instead.
    """
    await tmux.kill_session(name)
    await end_marked(folder)  # what a start left that was cut off
    state = TerminalState(name, token=secrets.token_hex(16))
    _write_token(folder, state.token)
    point("worker.terminal.token")
    try:
        before = await _open_pane(state, folder, tmux, log, launch)
        point("worker.terminal.pane")
        await _greet(state, folder, tmux, log, before)
    except BaseException:
        await tmux.kill_session(name)
        await end_marked(folder)
        raise
    state.sink = await sink_of(folder)
    point("worker.terminal.started")
    state_file.save(folder, state)
    return state


async def _open_pane(
    state: TerminalState, folder: Path, tmux: Tmux, log: TerminalLog, launch: Launch
) -> int:
    """Start the session; the log's length before its first byte."""
    fifo = folder / "shell"
    (folder / "commands").mkdir(parents=True, exist_ok=True)
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo, 0o600)
    script = folder / "start.sh"
    argv = await asyncio.to_thread(launch, folder / "commands", SHELL, state.token)
    ended = folder / "exit"
    ended.unlink(missing_ok=True)
    # tmux 3.3 loses the status of a pane now and then, so the script keeps it.
    script.write_text(
        f"exec 9<>{shlex.quote(str(fifo))}\n{shlex.join(argv)}\n"
        f"echo $? >{shlex.quote(str(ended))}\n"
    )
    script.chmod(0o600)
    notice = b"\r\n[houston: a new shell was started here]\r\n" if log.size() else b""
    segment = log.begin_segment(notice)
    before = log.size()
    await tmux.new_session(
        state.name, f"exec /bin/sh {shlex.quote(str(script))}", sink_command(folder, segment)
    )
    return before


def _write_token(folder: Path, token: str) -> None:
    """Before the first process: whoever finds the folder later can end what carries it."""
    beside = folder / "token.new"
    beside.write_text(token)
    beside.replace(folder / "token")


async def end_marked(folder: Path, token: str = "") -> None:
    """End every process of the last start in `folder`, finished or cut off.

    token: what they carry, where it is known; else it is read from the folder.
    """
    if not token:
        try:
            token = (folder / "token").read_text()
        except FileNotFoundError:
            return
    if token:  # a power cut can leave the file empty; what it named has ended then
        await asyncio.to_thread(processes.end_marked, token)


def exit_code(folder: Path) -> int | None:
    """What the terminal's shell ended with; None while it runs or when it was killed."""
    try:
        text = (folder / "exit").read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None


def sink_command(folder: Path, segment: Path) -> str:
    """The shell line that appends what it reads to `segment` and leaves its pid."""
    pid, log = shlex.quote(str(folder / "sink.pid")), shlex.quote(str(segment))
    return f"echo $$ >{pid}; exec cat >>{log}"


async def sink_of(folder: Path) -> processes.ProcessKey:
    """The process that writes the log, once it has said its pid (NOBODY after a second)."""
    for _ in range(200):
        try:
            text = (folder / "sink.pid").read_text().strip()
        except FileNotFoundError:
            text = ""
        if text:
            return processes.key_of(int(text))
        await asyncio.sleep(0.005)
    return processes.NOBODY


async def _greet(
    state: TerminalState, folder: Path, tmux: Tmux, log: TerminalLog, before: int
) -> None:
    nonce = secrets.token_hex(16)
    pane = await tmux.pane_pid(state.name)
    if pane is None:
        raise TerminalDead(state.name, "tmux did not keep its session")
    state.pane = processes.key_of(pane)
    deadline = time.monotonic() + START_SECONDS
    greeted = False
    mark = marks.ready_mark(nonce)
    while time.monotonic() < deadline:
        if not greeted:
            greeted = write_lines(folder, marks.greeting(nonce))
        _, found, rest = log.read(before, log.size()).partition(mark)
        if found and b"\x07" in rest:
            tty, shell = rest.partition(b"\x07")[0].decode().split(" ")
            _recognise(state, tty, int(shell))
            return
        if not processes.is_alive(state.pane):
            break
        await asyncio.sleep(0.003)
    said = " ".join(log.lines(before))[-300:]
    raise TerminalDead(state.name, f"its shell did not start ({said or 'it said nothing'})")


def _recognise(state: TerminalState, tty: str, shell: int) -> None:
    """Find the shell and the sandbox's first process among the pane's, as seen from here."""
    below = processes.descendants(state.pane.pid, processes.table())
    state.tty = tty
    for pid in [state.pane.pid, *(entry.pid for entry in below)]:
        if processes.inner_pid(pid) == shell:
            state.shell = processes.key_of(pid)
    for entry in below:
        if processes.inner_pid(entry.pid) == 1 != entry.pid:
            state.init = processes.key_of(entry.pid)
    if state.shell == processes.NOBODY:
        raise TerminalDead(state.name, "its shell ended at once")


def write_lines(folder: Path, lines: bytes) -> bool:
    """Hand lines to the shell, all of them or none; False when nobody reads."""
    try:
        descriptor = os.open(folder / "shell", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return os.write(descriptor, lines) == len(lines)
    except (BlockingIOError, BrokenPipeError):
        return False
    finally:
        os.close(descriptor)
