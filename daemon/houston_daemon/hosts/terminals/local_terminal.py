"""Terminals of this machine: a tmux session, a shell in it, and a byte log.

A command is written to a file and sourced by the shell. The lines that make the shell do so, and
mark start and end in the byte stream, come through a pipe that is the shell's input (the command's
own input is the terminal). A terminal outlives this process; its folder holds what a later one
needs:

    state.json    last command, nonces, offsets, processes
    shell         the pipe (FIFO) that the shell reads
    commands/     the command file, the only thing that the sandbox sees, read-only
    log.<offset>  what was printed
    start.sh      how the pane was started; exit, what its shell ended with
    job_lines.json  what each command that runs apart printed last to a file, for who watches
    token         what all its processes carry in their environment, from before the first of them
"""

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import signal
import struct
import termios
import time
from pathlib import Path
from typing import Literal

from houston_daemon.hosts import process_table
from houston_daemon.hosts.host_protocol import TerminalBusy, TerminalDead, TerminalStatus
from houston_daemon.hosts.process_table import ProcessKey, ProcessStat
from houston_daemon.hosts.terminals import shell_marks, terminal_start
from houston_daemon.hosts.terminals.background_commands import BackgroundCommands
from houston_daemon.hosts.terminals.shell_marks import MarkNonces
from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from houston_daemon.hosts.terminals.terminal_start import TerminalState
from houston_daemon.hosts.terminals.tmux_server import TmuxServer
from houston_shared import atomic_file
from houston_shared.faults import point

_REPIPE_SECONDS = 3.0
_SPARE_BYTES = 200_000_000
"""Of the disk, which no log takes."""
_SLICE = 1 << 22
_OVERLAP = 256
_CODE = re.compile(rb"[0-9]{1,3}")
_NO_CODE = 255


class LocalTerminal:
    """One terminal; `LocalHost.terminal` opens it or finds it again."""

    def __init__(
        self, folder: Path, tmux: TmuxServer, state: TerminalState, command_path: str
    ) -> None:
        self.name = state.name
        self.folder = folder
        self.log = TerminalLog(folder)
        self.state = state
        self._tmux = tmux
        self._command_path = command_path
        self._scanned = state.sent_at
        self._lock = asyncio.Lock()
        self._checked_pipe = 0.0
        self._last_repipe = 0.0
        self._unlogged = ""
        self.log.secret = state.nonces
        self._background = BackgroundCommands(folder, state, self.log)

    async def run(self, command: str) -> int:
        """Start `command`; returns the log offset of its first output byte.

        Raises TerminalBusy while another runs, TerminalDead when the shell is gone.
        """
        async with self._lock:
            await self._refresh(check_pipe=True)
            self._refuse_if_dead()
            if self.state.running:
                raise TerminalBusy(self.name, self.state.command)
            file = self.folder / "commands" / "command"
            atomic_file.write_atomically(
                file, command.encode(errors="surrogateescape"), durable=False
            )
            nonces = MarkNonces.fresh()
            state = self.state
            state.command, state.nonces, state.running = command, nonces, True
            state.exit_code = state.started_at = None
            state.command_began, state.command_ended = time.time(), 0.0
            state.sent_at = self._scanned = self.log.size()
            self.log.secret = nonces
            try:
                self._save()
                point("worker.command.noted")
                self._hand_over(nonces, command)
            except BaseException:  # such as a full disk: nothing was started
                state.running = False
                raise
            point("worker.command.handed")
            return await self._wait_for_start()

    def _hand_over(self, nonces: MarkNonces, command: str) -> None:
        lines = shell_marks.command_lines(nonces, command, self._command_path, self.state.tty)
        if not terminal_start.write_shell_lines(self.folder, lines):
            self.state.running = False
            self._save()
            raise TerminalDead(self.name, "its shell no longer reads")

    async def wait(self, seconds: float, stop: asyncio.Event) -> TerminalStatus:
        """Wait until the command ends, `seconds` pass or `stop` is set; never ends the command."""
        start_time = time.monotonic()
        while True:
            await self._refresh(check_pipe=False)
            waited = time.monotonic() - start_time
            if not self.state.running or waited >= seconds or stop.is_set():
                return await self.status()
            pause = 0.001 if waited < 0.05 else min(0.2, waited / 20)
            await _sleep_unless_stopped(min(pause, seconds - waited), stop)

    async def type_text(self, text: str) -> None:
        """Type into the foreground, as a person would; a line feed is the Enter key.

        At the shell's own prompt the text is a command, and runs as one.
        """
        await self._refresh(check_pipe=True)
        self._refuse_if_dead()
        if not self.state.running:
            if text.strip():
                await self.run(text.rstrip("\r\n"))
        elif not await self._tmux.type_keys(self.name, text):
            raise TerminalDead(self.name, "its session is gone")

    async def status(self) -> TerminalStatus:
        """How the terminal stands now."""
        await self._refresh(check_pipe=True)
        self._look_at_background()
        state = self.state
        return TerminalStatus(
            name=self.name,
            alive=not state.ended,
            busy=state.running and not state.ended,
            exit_code=state.exit_code,
            command=state.command,
            log_bytes=self.log.size(),
            last_output=self.log.last_output(),
            end=state.end(),
            unlogged="" if state.ended else self._unlogged,
            log_start=state.sent_at if state.started_at is None else state.started_at,
            command_began=state.command_began,
            command_ended=state.command_ended,
            background=tuple(state.background),
        )

    def _look_at_background(self) -> None:
        if self.state.ended:
            self._background.end_all()
        elif self._background.look():
            with contextlib.suppress(OSError):  # a full disk: looking needs none, and it is known
                self._save()

    async def lines(self, start: int, end: int | None = None) -> list[str]:
        """The log between two byte offsets as screen lines; marks never show."""
        return await asyncio.to_thread(self.log.lines, start, end)

    async def signal(self, name: Literal["INT", "TERM", "KILL"]) -> list[str]:
        """Signal the foreground command's processes; returns their names.

        INT goes to the foreground group, as with Ctrl-C. TERM and KILL also go to their children,
        and the rest of the command's lines is dropped: with KILL at once, with TERM if the
        processes end within a second. The shell lives on.
        """
        await self._refresh(check_pipe=False)
        if not self.state.running or self.state.ended:
            return []
        number = signal.Signals[f"SIG{name}"]
        targets = await asyncio.to_thread(self._foreground, name != "INT")
        if name == "KILL":
            self._resume_stopped()
        if name == "KILL" or not targets:
            # First, or the shell would go on to the next line before it is told to stop.
            process_table.send_signal([self.state.shell.pid], signal.SIGINT)
        process_table.send_signal([entry.pid for entry in targets], number)
        if name == "TERM" and targets:
            await self._abandon_when_gone([ProcessKey(e.pid, e.started) for e in targets])
        return [entry.name for entry in targets]

    async def close(self) -> None:
        """End the session and everything that runs in it; the log stays."""
        await self.end_processes()
        if self.state.running:
            self.state.command_ended = time.time()
        self.state.closed = self.state.ended = True
        self.state.running = False
        self._save()

    async def end_processes(self) -> None:
        """End every process of the terminal, also those that left its session."""
        await self._tmux.kill_session(self.name)
        if process_table.is_alive(self.state.init):
            process_table.send_signal([self.state.init.pid], signal.SIGKILL)
        await terminal_start.kill_terminal_processes(self.folder, self.state.token)

    def release(self) -> None:
        """Let go of what this process keeps open; the terminal goes on."""
        self._background.release()

    async def settle(self) -> None:
        """After a restart of our process: find out what became of the last command.

        One that was noted but never reached the shell is no longer called running.
        """
        await self._refresh(check_pipe=True)
        if self.state.running and self.state.started_at is None and not self._unread_bytes():
            await asyncio.sleep(0.05)
            await self._refresh(check_pipe=False)
            if self.state.running and self.state.started_at is None:
                self.state.running = False
                self._save()

    async def _wait_for_start(self) -> int:
        deadline = time.monotonic() + terminal_start.START_SECONDS
        pause = 0.0002
        while time.monotonic() < deadline:
            await self._refresh(check_pipe=pause > 0.01)
            if self.state.started_at is not None:
                return self.state.started_at
            self._refuse_if_dead()
            if not self.state.running:  # ended without a start: the shell says why in the log
                return self.state.sent_at
            if self._unlogged and not self._unread_bytes():  # no mark will come
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, 0.05)
        if not self._unread_bytes():  # taken, but its mark fell into a gap of the log
            self.state.started_at = self.log.size()
            self._save()
            return self.state.started_at
        raise TerminalDead(self.name, "its shell does not answer")

    async def _refresh(self, *, check_pipe: bool) -> None:
        """Bring `state` up to date with the log, the processes and the pipe."""
        if self.state.ended:
            return
        alive = process_table.is_alive(self.state.shell)
        if alive and not process_table.is_alive(self.state.pane):
            # The shell has a terminal of its own and does not notice; nothing can reach it now.
            await self.end_processes()
            alive = False
        if check_pipe or time.monotonic() - self._checked_pipe > 0.5:
            self._checked_pipe = time.monotonic()
            if alive:
                await self._keep_log_written()
        await self._scan_log()
        if not alive:
            await self._note_end()

    async def _scan_log(self) -> None:
        """Look for the marks of the running command in what was printed since."""
        size = self.log.size()
        while self.state.running and self._scanned < size:
            start = max(self.state.sent_at, self._scanned - _OVERLAP)
            stop = min(size, self._scanned + _SLICE)
            if stop - start > 1 << 20:
                data = await asyncio.to_thread(self.log.read, start, stop)
            else:
                data = self.log.read(start, stop)
            self._scanned = stop
            self._find_marks(data, start)

    def _find_marks(self, data: bytes, start: int) -> None:
        nonces = self.state.nonces
        if nonces is None:
            return
        has_news = False
        if self.state.started_at is None:
            mark = shell_marks.start_mark(nonces)
            at = data.find(mark)
            if at >= 0:
                self.state.started_at, has_news = start + at + len(mark), True
        _, marked, rest = data.partition(shell_marks.end_mark(nonces))
        code, closed, _ = rest.partition(b"\x07")
        if marked and closed:
            self.state.exit_code, has_news = _command_exit_code(code.partition(b";")[0]), True
            self.state.running, self.state.command_ended = False, self.log.last_output()
        if has_news:  # once, after both: a full disk must not hide the end behind the start
            self._save()

    async def _note_end(self) -> None:
        """The shell is gone: let its last output reach the log, then note how it ended."""
        state = self.state
        code = await self._read_shell_code()
        size = -1
        while size != self.log.size():
            size = self.log.size()
            await asyncio.sleep(0.03)
        await self._scan_log()
        state.ended, state.shell_code = True, code
        if state.running:
            state.exit_code, state.running = code, False
            state.command_ended = self.log.last_output()
        self._save()

    async def _read_shell_code(self) -> int | None:
        """What the shell ended with, written a moment after; None when it was killed."""
        for _ in range(100):
            if (code := terminal_start.read_shell_exit_code(self.folder)) is not None:
                return code
            if not process_table.is_alive(self.state.pane):
                return terminal_start.read_shell_exit_code(self.folder)
            await asyncio.sleep(0.01)
        return None

    async def _keep_log_written(self) -> None:
        """Keep the log being written, but never the disk full: a flood stops at a margin.

        What is printed meanwhile is lost, which the log says where it goes on. A command that
        ends meanwhile is called running until then.
        """
        recording = process_table.is_alive(self.state.sink)
        room = shutil.disk_usage(self.folder).free >= _SPARE_BYTES
        self._unlogged = "" if room else "the host's disk is nearly full"
        if recording and not room:
            process_table.send_signal([self.state.sink.pid], signal.SIGKILL)
        elif room and not recording:
            await self._restart_log_sink()

    async def _restart_log_sink(self) -> None:
        """The log's writer is gone: start another, and say in the log that there is a gap."""
        if time.monotonic() - self._last_repipe < _REPIPE_SECONDS:
            return
        self._last_repipe = time.monotonic()
        since = time.strftime("%H:%M:%SZ", time.gmtime(self.log.last_output()))
        segment = self.log.begin_segment(
            f"\r\n[houston: the log stopped; output after {since} may be missing here]\r\n".encode()
        )
        (self.folder / "sink.pid").unlink(missing_ok=True)
        sink = terminal_start.log_sink_command(self.folder, segment)
        if not await self._tmux.pipe(self.name, sink):
            return
        self.state.sink = await terminal_start.find_log_sink(self.folder)
        self._save()
        if self.state.running and self.state.nonces is not None:
            terminal_start.write_shell_lines(self.folder, shell_marks.end_line(self.state.nonces))

    def _resume_stopped(self) -> None:
        """Let the shell and what stands above it go on: `suspend` stops them all."""
        everyone = process_table.list_processes()
        at = everyone.get(self.state.shell.pid)
        while at is not None:
            process_table.send_signal([at.pid], signal.SIGCONT)
            at = everyone.get(at.parent) if at.pid != self.state.pane.pid else None

    def _foreground(self, deep: bool) -> list[ProcessStat]:
        """Processes of the foreground group without the shell; deep: and all below them."""
        shell = process_table.read_process_stat(self.state.shell.pid)
        if shell is None or shell.foreground in (-1, 0, shell.group):
            return []
        everyone = process_table.list_processes()
        processes = [entry for entry in everyone.values() if entry.group == shell.foreground]
        if deep:
            for entry in list(processes):
                processes += process_table.descendants(entry.pid, everyone)
        unique = {entry.pid: entry for entry in processes if entry.pid != shell.pid}
        return list(unique.values())

    async def _abandon_when_gone(self, keys: list[ProcessKey]) -> None:
        """Interrupt what is left of the command once `keys` have ended, if they do in a second."""
        for _ in range(100):
            if not any(process_table.is_alive(key) for key in keys):
                break
            await asyncio.sleep(0.01)
        else:
            return
        await asyncio.sleep(0.05)
        await self._refresh(check_pipe=False)
        if self.state.running:
            late = await asyncio.to_thread(self._foreground, True)
            process_table.send_signal([self.state.shell.pid], signal.SIGINT)
            process_table.send_signal([entry.pid for entry in late], signal.SIGTERM)

    def _unread_bytes(self) -> int:
        """Bytes in the pipe that the shell has not read yet."""
        descriptor = os.open(self.folder / "shell", os.O_RDONLY | os.O_NONBLOCK)
        try:
            answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
        finally:
            os.close(descriptor)
        return int(struct.unpack("i", answer)[0])

    def _refuse_if_dead(self) -> None:
        if self.state.ended:
            raise TerminalDead(self.name, self.state.end())

    def _save(self) -> None:
        terminal_start.save_terminal_state(self.folder, self.state)


def _command_exit_code(shell_text: bytes) -> int:
    """What the shell says a command ended with; the agent can make it say anything."""
    return (
        int(shell_text) if _CODE.fullmatch(shell_text) and int(shell_text) <= _NO_CODE else _NO_CODE
    )


async def _sleep_unless_stopped(seconds: float, stop: asyncio.Event) -> None:
    """Sleep, or wake when `stop` is set; cheap for the short naps of a fast command."""
    if seconds < 0.02:
        await asyncio.sleep(seconds)
        return
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
