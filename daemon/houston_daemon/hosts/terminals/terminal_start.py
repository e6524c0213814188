"""Starts a terminal: the pane's command, its log, the first exchange with the shell; state on disk.

The shell is an interactive bash whose input is a pipe of ours and whose terminal is a new pty in
the sandbox (made by `script`), so that Ctrl-C, job control and TIOCSTI stay inside. With the state
file, a new process finds the terminal as it was left.
"""

import asyncio
import os
import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from houston_daemon.hosts import process_table
from houston_daemon.hosts.host_protocol import BackgroundCommand, TerminalDead
from houston_daemon.hosts.process_table import NO_PROCESS, ProcessKey
from houston_daemon.hosts.terminals import shell_marks
from houston_daemon.hosts.terminals.shell_marks import MarkNonces
from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from houston_daemon.hosts.terminals.tmux_server import TmuxServer
from houston_shared import atomic_file
from houston_shared.faults import point


class TerminalState(msgspec.Struct):
    """One terminal and its last command; written whole, beside and then over the old one."""

    name: str
    token: str = ""
    """Names the processes of this start in their environment; not a secret."""
    pane: ProcessKey = NO_PROCESS
    """tmux's child."""
    init: ProcessKey = NO_PROCESS
    """First process of the sandbox: ending it ends all others there."""
    shell: ProcessKey = NO_PROCESS
    sink: ProcessKey = NO_PROCESS
    """What writes the log."""
    tty: str = ""
    """Path of the shell's terminal, as the shell sees it."""
    closed: bool = False
    ended: bool = False
    """The shell was seen to have ended."""
    shell_code: int | None = None
    """What the shell ended with; None when its session was ended over its head."""
    command: str = ""
    nonces: MarkNonces | None = None
    """None before the first command."""
    sent_at: int = 0
    """Log offset when the last command was handed over."""
    started_at: int | None = None
    """Log offset of its first output byte."""
    running: bool = False
    exit_code: int | None = None
    command_began: float = 0.0
    """Unix time at which the last command was handed over."""
    command_ended: float = 0.0
    """Unix time at which its end was printed; 0 while it runs."""
    background: list[BackgroundCommand] = []
    """What was started apart from the foreground, oldest first."""

    def end(self) -> str:
        """How the shell ended, in words that follow a name; empty while it lives."""
        if not self.ended:
            return ""
        if self.closed:
            return "it was closed"
        if self.shell_code is not None:
            return f"its shell ended with exit code {self.shell_code}"
        return "its tmux session was ended from outside, and what ran in it was ended too"


def load_terminal_state(folder: Path) -> TerminalState | None:
    """The state in a terminal's folder; None where there is none, or a power cut left half."""
    return atomic_file.read_json_file(folder / "state.json", TerminalState, FileNotFoundError)


def save_terminal_state(folder: Path, state: TerminalState) -> None:
    """Replace the state in one move; readable by this user only, for it holds the nonces."""
    atomic_file.write_atomically(
        folder / "state.json", msgspec.json.encode(state), mode=0o600, durable=False
    )


START_SECONDS = 20.0
SHELL_COMMAND = "PS1= exec bash --noprofile --norc --noediting -i <&9 9<&-"
"""Reads our lines from descriptor 9; `PS1=` because prompts are written by us."""

LaunchCommand = Callable[[Path, str, str], Sequence[str]]
"""(folder with the command file, shell line, token) → argument list of the pane's command."""


async def start_terminal(
    name: str, folder: Path, tmux: TmuxServer, log: TerminalLog, launch: LaunchCommand
) -> TerminalState:
    """Open a new session for `name`; its log goes on where an earlier one ended.

    Raises TerminalDead when the shell does not answer, with what it said instead.
    """
    await tmux.kill_session(name)
    await kill_terminal_processes(folder)  # what a start left that was cut off
    state = TerminalState(name, token=secrets.token_hex(16))
    # Before the first process: whoever finds the folder later can end what carries the token.
    atomic_file.write_atomically(folder / "token", state.token.encode(), durable=False)
    point("worker.terminal.token")
    try:
        before = await _open_pane(state, folder, tmux, log, launch)
        point("worker.terminal.pane")
        await _greet_shell(state, folder, tmux, log, before)
    except BaseException:
        await tmux.kill_session(name)
        await kill_terminal_processes(folder)
        raise
    state.sink = await find_log_sink(folder)
    point("worker.terminal.started")
    save_terminal_state(folder, state)
    return state


async def _open_pane(
    state: TerminalState, folder: Path, tmux: TmuxServer, log: TerminalLog, launch: LaunchCommand
) -> int:
    """Start the session; the log's length before its first byte."""
    fifo = folder / "shell"
    (folder / "commands").mkdir(parents=True, exist_ok=True)
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo, 0o600)
    script = folder / "start.sh"
    argv = await asyncio.to_thread(launch, folder / "commands", SHELL_COMMAND, state.token)
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
        state.name, f"exec /bin/sh {shlex.quote(str(script))}", log_sink_command(folder, segment)
    )
    return before


async def kill_terminal_processes(folder: Path, token: str = "") -> None:
    """End every process of the last start in `folder`, finished or cut off.

    token: what they carry, where it is known; else it is read from the folder.
    """
    if not token:
        try:
            token = (folder / "token").read_text()
        except FileNotFoundError:
            return
    if token:  # a power cut can leave the file empty; what it named has ended then
        await asyncio.to_thread(process_table.kill_all_marked, token)


def read_shell_exit_code(folder: Path) -> int | None:
    """What the terminal's shell ended with; None while it runs or when it was killed."""
    try:
        text = (folder / "exit").read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None


def log_sink_command(folder: Path, segment: Path) -> str:
    """The shell line that appends what it reads to `segment` and leaves its pid."""
    pid, log = shlex.quote(str(folder / "sink.pid")), shlex.quote(str(segment))
    return f"echo $$ >{pid}; exec cat >>{log}"


async def find_log_sink(folder: Path) -> process_table.ProcessKey:
    """The process that writes the log, once it has said its pid (NO_PROCESS after a second)."""
    for _ in range(200):
        try:
            text = (folder / "sink.pid").read_text().strip()
        except FileNotFoundError:
            text = ""
        if text:
            return process_table.process_key(int(text))
        await asyncio.sleep(0.005)
    return process_table.NO_PROCESS


async def _greet_shell(
    state: TerminalState, folder: Path, tmux: TmuxServer, log: TerminalLog, before: int
) -> None:
    nonce = secrets.token_hex(16)
    pane = await tmux.pane_pid(state.name)
    if pane is None:
        raise TerminalDead(state.name, "tmux did not keep its session")
    state.pane = process_table.process_key(pane)
    deadline = time.monotonic() + START_SECONDS
    greeted = False
    mark = shell_marks.ready_mark(nonce)
    while time.monotonic() < deadline:
        if not greeted:
            greeted = write_shell_lines(folder, shell_marks.shell_greeting(nonce))
        _, marked, rest = log.read(before, log.size()).partition(mark)
        if marked and b"\x07" in rest:
            tty, shell = rest.partition(b"\x07")[0].decode().split(" ")
            _recognise_processes(state, tty, int(shell))
            return
        if not process_table.is_alive(state.pane):
            break
        await asyncio.sleep(0.003)
    printed = " ".join(log.lines(before))[-300:]
    raise TerminalDead(state.name, f"its shell did not start ({printed or 'it said nothing'})")


def _recognise_processes(state: TerminalState, tty: str, shell: int) -> None:
    """Find the shell and the sandbox's first process among the pane's, as seen from here."""
    below = process_table.descendants(state.pane.pid, process_table.list_processes())
    state.tty = tty
    for pid in [state.pane.pid, *(entry.pid for entry in below)]:
        if process_table.inner_pid(pid) == shell:
            state.shell = process_table.process_key(pid)
    for entry in below:
        if process_table.inner_pid(entry.pid) == 1 != entry.pid:
            state.init = process_table.process_key(entry.pid)
    if state.shell == process_table.NO_PROCESS:
        raise TerminalDead(state.name, "its shell ended at once")


def write_shell_lines(folder: Path, lines: bytes) -> bool:
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
