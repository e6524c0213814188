"""Follows processes started in a terminal outside its foreground command: `&`, `nohup`, `setsid`.

Such a process is a child of the shell in its own process group, or one adopted by the sandbox's
first process. /proc shows when it has gone; only its shell knows how it ended, and prints that
before it reads its next line (`[2]-  Exit 4   python train.py`). So an idle shell is sent an empty
line, as if a person pressed Enter; its output is in the log. Processes that ended with the command
which started them are not followed: they did not outlive their call.
"""

import contextlib
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from houston_daemon.hosts import process_table
from houston_daemon.hosts.host_protocol import BackgroundCommand
from houston_daemon.hosts.process_table import NO_PROCESS, ProcessStat
from houston_daemon.hosts.terminals import terminal_start
from houston_daemon.hosts.terminals.terminal_log import TerminalLog
from houston_daemon.hosts.terminals.terminal_start import TerminalState
from houston_shared import atomic_file, terminal_log_files

SHELL_ANSWER_SECONDS = 0.5
"""How long a shell may take to tell how something ended, before that counts as not known."""
MIN_PROCESS_AGE_SECONDS = 0.1
"""Age below which what is beside a foreground command is left for the next look."""
KEPT_COMMANDS = 32
"""Commands that are remembered of one terminal: those that run come before those that ended."""
COMMAND_CHARACTERS = 500
"""Characters of a command that are remembered."""
_EMPTY_LINE = b"\\builtin :\n"
_LOOK_BACK_BYTES = 1 << 16
"""Bytes of new output that are searched for what the shell tells."""
_TAIL_BYTES = 4096
_FORKING = "setsid"
"""A program that becomes another, or starts it and is gone at once."""
_SIGNALS = {
    "Hangup": signal.SIGHUP,
    "Interrupt": signal.SIGINT,
    "Quit": signal.SIGQUIT,
    "Illegal instruction": signal.SIGILL,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating point exception": signal.SIGFPE,
    "Killed": signal.SIGKILL,
    "Segmentation fault": signal.SIGSEGV,
    "Terminated": signal.SIGTERM,
}
_SHELL_TELLS = re.compile(
    rb"^\[(?P<number>\d+)\][-+ ] +(?:(?P<done>Done)|Exit (?P<code>\d+)"
    rb"|(?P<signal>" + "|".join(_SIGNALS).encode() + rb")(?: \(core dumped\))?)"
    rb"(?: +(?P<command>\S.*?))?\r?\n",
    re.M,
)
"""How an interactive bash tells that a job of the background ended (bash(1), JOB CONTROL)."""


class BackgroundCommands:
    """The background commands of one terminal; keeps `state.background` up to date."""

    def __init__(self, folder: Path, state: TerminalState, log: TerminalLog) -> None:
        self._folder = folder
        self._state = state
        self._log = log
        self._outputs: dict[str, int] = {}
        """By key, an open descriptor of the file that a command prints to."""
        #: Of each that has gone: Unix time, and the monotonic time since which the shell may tell.
        self._gone: dict[str, tuple[float, float]] = {}
        """By key of those that are gone, since when: the shell has yet to tell how."""
        self._reported_offset = log.size()
        self._written_lines: dict[str, str] = {}
        """By key, the last lines that stand in the terminal's file."""

    def look(self) -> bool:
        """Check what runs and what has ended; whether a later worker needs to know of a change."""
        before = list(self._state.background)
        known_keys = {command.key for command in before}
        open_keys = {_group(command.key): command.key for command in before if not command.ended}
        running = {
            open_keys.get(entry.group) or f"{entry.group}.{entry.started}": entry
            for entry in self._detached_processes()
        }
        room = KEPT_COMMANDS - len(open_keys)
        for key, entry in running.items():
            is_passing = self._state.running and _is_young(entry)
            if key not in known_keys and not is_passing and room > 0:
                self._state.background.append(self._describe(key, entry))
                room -= 1
        self._note_gone(running)
        self._read_exit_codes()
        self._find_outputs(running)
        for key in running:
            self._read_last_line(key)
        self._write_last_lines()
        self._forget_old()
        return list(map(_persistent_part, self._state.background)) != list(
            map(_persistent_part, before)
        )

    def release(self) -> None:
        """Let go of the files that are kept open."""
        for descriptor in self._outputs.values():
            os.close(descriptor)
        self._outputs.clear()

    def end_all(self) -> None:
        """The terminal has ended, and everything in it."""
        now = time.time()
        for command in self._state.background:
            if not command.ended:
                self._change(command.key, ended=now)
        self.release()

    def _detached_processes(self) -> list[ProcessStat]:
        """The leaders of what runs apart, oldest first."""
        shell = process_table.read_process_stat(self._state.shell.pid)
        if shell is None or shell.started != self._state.shell.started:
            return []
        entries = [
            entry
            for entry in process_table.children(shell.pid)
            if entry.group not in (shell.group, shell.foreground) and entry.name != _FORKING
        ]
        if self._state.init != NO_PROCESS:
            entries += [
                entry
                for entry in process_table.children(self._state.init.pid)
                if entry.group not in (self._state.init.pid, shell.group, shell.foreground)
                and entry.pid != shell.parent
            ]
        leaders: dict[int, ProcessStat] = {}
        for entry in sorted(entries, key=lambda entry: (entry.started, entry.pid)):
            leaders.setdefault(entry.group, entry)
        return list(leaders.values())

    def _describe(self, key: str, entry: ProcessStat) -> BackgroundCommand:
        shell_line = process_table.command_line(self._state.shell.pid)
        command = process_table.command_line(entry.pid)
        if not command or command == shell_line:  # a part of the command, in a shell of its own
            command = self._state.command
        return BackgroundCommand(
            key,
            command[:COMMAND_CHARACTERS],
            time.time() - process_table.age_seconds(entry.started),
            adopted=entry.parent != self._state.shell.pid,
        )

    def _find_outputs(self, running: dict[str, ProcessStat]) -> None:
        """A look may come between a shell's fork and the redirection of what it forked."""
        for command in list(self._state.background):
            entry = running.get(command.key)
            output = (
                self._open_output(command.key, entry.pid) if entry and not command.output else ""
            )
            if output:
                self._change(command.key, output=output)

    def _open_output(self, key: str, pid: int) -> str:
        """Keep the file that it prints to open, for its last line; the file's path."""
        link = f"/proc/{pid}/fd/1"
        with contextlib.suppress(OSError):
            path = os.readlink(link)  # noqa: PTH115
            if not path.startswith("/") or path.startswith("/dev/"):
                return ""
            descriptor = os.open(link, os.O_RDONLY | os.O_NONBLOCK)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._outputs[key] = descriptor
                return path
            os.close(descriptor)
        return ""

    def _read_last_line(self, key: str) -> None:
        if (descriptor := self._outputs.get(key)) is None:
            return
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        lines = data.decode(errors="replace").replace("\r", "\n").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        self._change(key, last_line=last[-COMMAND_CHARACTERS:])

    def _write_last_lines(self) -> None:
        """For who watches the terminal from this machine: no step or event says it meanwhile."""
        lines = {
            command.key: command.last_line
            for command in self._state.background
            if command.last_line and not command.ended
        }
        if lines != self._written_lines:
            with contextlib.suppress(OSError):  # a full disk: looking needs none
                place = terminal_log_files.job_lines_file(self._folder)
                atomic_file.write_atomically(place, msgspec.json.encode(lines), durable=False)
                self._written_lines = lines

    def _note_gone(self, running: dict[str, ProcessStat]) -> None:
        """Ask the shell about those that have just gone; end those of which it told nothing."""
        newly_gone = [
            command.key
            for command in self._state.background
            if not command.ended and command.key not in running and command.key not in self._gone
        ]
        for key, (ended, since) in list(self._gone.items()):
            if time.monotonic() - since > SHELL_ANSWER_SECONDS:
                self._change(key, ended=ended)
                del self._gone[key]
        for key in newly_gone:
            self._read_last_line(key)
            if (descriptor := self._outputs.pop(key, None)) is not None:
                os.close(descriptor)
            self._gone[key] = time.time(), time.monotonic()
        if newly_gone and not self._state.running and not self._state.ended:
            terminal_start.write_shell_lines(self._folder, _EMPTY_LINE)

    def _read_exit_codes(self) -> None:
        """Match what the shell told since the last look with those of which it has not told."""
        size = self._log.size()
        start = max(self._reported_offset, size - _LOOK_BACK_BYTES)
        unreported_commands = [
            command
            for command in self._state.background
            if command.exit_code is None
            and not command.adopted
            and (command.ended or command.key in self._gone)
        ]
        if not unreported_commands:
            self._reported_offset = size
            return
        data = self._log.read(start, size)
        self._reported_offset = start + data.rfind(b"\n") + 1
        lines = sorted(_SHELL_TELLS.finditer(data), key=lambda line: int(line["number"]))
        for command, line in _match_exit_lines(unreported_commands, lines):
            ended, _ = self._gone.pop(command.key, (command.ended, 0.0))
            self._change(command.key, ended=ended, exit_code=_exit_code(line))

    def _change(self, key: str, **changes: object) -> None:
        commands = self._state.background
        for index, command in enumerate(commands):
            if command.key == key:
                commands[index] = replace(command, **changes)  # type: ignore[arg-type]

    def _forget_old(self) -> None:
        commands = self._state.background
        while len(commands) > KEPT_COMMANDS:
            commands.remove(next(command for command in commands if command.ended))


def _match_exit_lines(
    unreported_commands: list[BackgroundCommand], exit_lines: "list[re.Match[bytes]]"
) -> Iterator[tuple[BackgroundCommand, "re.Match[bytes]"]]:
    """Who each line is of: numbers follow the order of starts; where lines are more or fewer, the
    one command whose words all stand in the line."""
    if len(unreported_commands) == len(exit_lines):
        yield from zip(unreported_commands, exit_lines, strict=True)
        return
    for line in exit_lines:
        text = (line["command"] or b"").decode(errors="replace")
        alike = [
            command
            for command in unreported_commands
            if all(word in text for word in command.command.split())
        ]
        if len(alike) == 1:
            unreported_commands.remove(alike[0])
            yield alike[0], line


def _persistent_part(command: BackgroundCommand) -> BackgroundCommand:
    """What of a command is worth a write each time it changes."""
    return command if command.ended else replace(command, last_line="")


def _is_young(entry: ProcessStat) -> bool:
    """Whether a process may just be on its way into the foreground, which its shell gives it."""
    return process_table.age_seconds(entry.started) < MIN_PROCESS_AGE_SECONDS


def _group(key: str) -> int:
    """The process group of a key: the first of a pipeline may end before the others."""
    return int(key.partition(".")[0])


def _exit_code(line: "re.Match[bytes]") -> int:
    if line["done"]:
        return 0
    if line["code"]:
        return int(line["code"])
    return 128 + _SIGNALS[line["signal"].decode()]
