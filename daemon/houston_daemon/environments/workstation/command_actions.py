"""The twelve command actions over the host's terminals: sessions, commands, answers, output."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.observation_boundary import first_lines, last_lines
from houston_daemon.environments.typed_observation import Failed, Observation
from houston_daemon.environments.workstation.command_observations import (
    CommandOutput,
    ProcessesSignalled,
    SessionChange,
    SessionEntry,
    SessionIdle,
    SessionList,
    SessionStatus,
)
from houston_daemon.environments.workstation.session_records import SessionRecords, shortened
from houston_daemon.environments.workstation_actions import (
    MAX_WINDOW_LINES,
    CheckSessionIdle,
    ClearSessionBuffer,
    CloseAllSessions,
    CloseSession,
    CommandAction,
    CreateSession,
    GetSessionOutput,
    GetSessionRecentOutput,
    GetSessionStatus,
    InputInSession,
    KillSessionProcesses,
    ListSessions,
    RunCommand,
)
from houston_daemon.hosts.host_protocol import (
    HostTerminal,
    RolloutHost,
    TerminalBusy,
    TerminalMissing,
    TerminalStatus,
)
from houston_shared.errors import HoustonError

_FIRST_BLOCK = 1 << 16
_MAX_OUTPUT_BYTES = 1 << 20
"""How far back `newest` reads for its lines: far more than is shown, decoded in milliseconds."""


class OutputLines(NamedTuple):
    """Output as lines."""

    text: str
    cut_bytes: int
    """Bytes between head and tail that were not read; the text says so."""


async def output_lines(
    terminal: HostTerminal, start: int, end: int, characters: int
) -> OutputLines:
    """The log of [start, end) within `characters`: whole, or head and tail with a notice."""
    part = max(4_000, characters * 2)
    if end - start <= 2 * part:
        return OutputLines("\n".join(await terminal.lines(start, end)), 0)
    head = "\n".join(await terminal.lines(start, start + part))
    last = await terminal.lines(end - part, end)
    tail = "\n".join(last[1:] or last)  # of a line that is longer than that, its end
    room = max(100, characters - 400)
    if len(head) > room * 2 // 3:
        head = first_lines(head, room * 2 // 3).removesuffix("\n")
    tail = last_lines(tail, room // 3)
    missing = end - start - len(head.encode()) - len(tail.encode())
    notice = (
        f"[… about {missing} bytes between are not shown; get_session_output(session_id="
        f"{terminal.name!r}, start_lines, end_lines) shows lines counted from the end …]"
    )
    return OutputLines(f"{head}\n{notice}\n{tail}", missing)


async def newest_lines(
    terminal: HostTerminal, begin: int, end: int, count: int
) -> tuple[list[str], bool]:
    """The last `count` lines of [begin, end), and whether there are earlier ones.

    Of a line longer than what is read there is its end.
    """
    if not count:
        return [], end > begin
    block = _FIRST_BLOCK
    while True:
        start = max(begin, end - block)
        lines = await terminal.lines(start, end)
        complete = lines if start == begin else lines[1:] or lines[-1:]
        if start == begin or len(complete) >= count or block >= _MAX_OUTPUT_BYTES:
            return complete[-count:], start > begin or len(complete) > count
        block *= 4


_GLANCE_SECONDS = 0.3
"""How long a command that is not waited for is watched, so that an immediate error shows."""
_ANSWER_SECONDS = 5.0
"""Most that an answer to a prompt is watched."""
_QUIET_SECONDS = 0.5
_LAST_LINES = 5
"""Lines at the end of a job's output among which its last one is looked for."""
# Processes of a shell that has ended can neither be seen nor signalled from the next one.
_ENDED = (
    "The session's shell has ended; the next command opens a new one and ends what the old"
    " one left running, so use another session_id to keep that."
)
_REOPENED = "The session was dead, {end}; this ran in a new shell, and what it had left was ended."


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What the task allows."""

    command_seconds: float
    silence_seconds: float
    """A running command must have been silent this long before it can be answered."""
    characters: int
    """Of output in one observation."""


ActionHandler = Callable[[Any, Stop], Awaitable[Observation]]


class CommandActions:
    """The twelve command actions, a method of its name for each."""

    def __init__(self, host: RolloutHost, records: SessionRecords, limits: CommandLimits) -> None:
        self._host = host
        self._known = records
        self._limits = limits

    async def act(self, arguments: CommandAction, stop: Stop) -> Observation:
        """Run the action of this name below. Raises TerminalMissing, TerminalBusy, TerminalDead."""
        handler: ActionHandler = getattr(self, arguments.name)
        return await handler(arguments, stop)

    async def create_session(self, call: CreateSession, _: Stop) -> Observation:
        """Open a terminal, or find it open already."""
        alive = {status.name for status in await self._host.terminals() if status.alive}
        terminal = await self._host.terminal(call.session_id, create=True)
        self._known.note(await terminal.status())
        change = "found" if call.session_id in alive else "created"
        return SessionChange(session_id=call.session_id, change=change)

    async def list_sessions(self, _: ListSessions, __: Stop) -> Observation:
        """Every session and what it runs."""
        entries = [
            SessionEntry(
                session_id=status.name,
                is_alive=status.alive,
                running=status.busy,
                exit_code=status.exit_code,
                command=shortened(status.command),
                end=status.end,
            )
            for status in await self._host.terminals()
        ]
        return SessionList(sessions=tuple(entries))

    async def get_session_status(self, call: GetSessionStatus, _: Stop) -> Observation:
        """How a session stands."""
        status = await (await self._host.terminal(call.session_id)).status()
        silent = max(0.0, time.time() - status.last_output) if status.last_output else None
        return SessionStatus(
            session_id=status.name,
            is_alive=status.alive,
            running=status.busy,
            exit_code=status.exit_code,
            command=shortened(status.command),
            last_activity=status.last_output or None,
            silent_seconds=silent,
            output_bytes=status.log_bytes,
            end=status.end,
        )

    async def check_session_idle(self, call: CheckSessionIdle, _: Stop) -> Observation:
        """Whether a session runs nothing."""
        status = await (await self._host.terminal(call.session_id)).status()
        command = shortened(status.command) if status.busy else ""
        return SessionIdle(session_id=status.name, is_idle=not status.busy, command=command)

    async def clear_session_buffer(self, call: ClearSessionBuffer, _: Stop) -> Observation:
        """Hide the output so far; the log keeps it."""
        status = await (await self._host.terminal(call.session_id)).status()
        self._known.hide(status)
        return SessionChange(session_id=status.name, change="cleared")

    async def close_session(self, call: CloseSession, _: Stop) -> Observation:
        """End a session and what runs in it."""
        await self._close(call.session_id)
        return SessionChange(session_id=call.session_id, change="closed", closed=(call.session_id,))

    async def close_all_sessions(self, _: CloseAllSessions, __: Stop) -> Observation:
        """End every session."""
        names = [status.name for status in await self._host.terminals()]
        for name in names:
            await self._close(name)
        return SessionChange(session_id="", change="closed", closed=tuple(names))

    async def kill_session_processes(self, call: KillSessionProcesses, _: Stop) -> Observation:
        """Signal what runs in the foreground; the session stays."""
        terminal = await self._host.terminal(call.session_id)
        busy = (await terminal.status()).busy
        self._known.jobs.stopping(call.session_id)
        killed = await terminal.signal("KILL" if call.force else "TERM")
        status = self._known.note(await terminal.wait(1.0, asyncio.Event()))
        return ProcessesSignalled(
            session_id=call.session_id,
            signal_used="SIGKILL" if call.force else "SIGTERM",
            killed_processes=tuple(killed),
            running=status.busy,
            shell_interrupted=busy and not killed,
        )

    async def run_command(self, call: RunCommand, stop: Stop) -> Observation:
        """Start a command and wait for it as long as the task allows."""
        terminal, note = await self._open(call.session_id)
        start_time = time.monotonic()
        try:
            start = await terminal.run(call.command)
        except TerminalBusy:
            status = await terminal.status()
            return _busy_error(call.session_id, status.command)
        patience = self._limits.command_seconds if call.wait_for_completion else _GLANCE_SECONDS
        status = self._known.note(await terminal.wait(patience, stop.event))
        self._known.jobs.left_running(status)
        waited = time.monotonic() - start_time
        text = await output_lines(terminal, start, status.log_bytes, self._limits.characters)
        ended_by = ""
        if status.busy:
            ended_by = "limit" if call.wait_for_completion else "asked"
            ended_by = (stop.reason or "wake") if stop.event.is_set() else ended_by
        return _output(status, text, waited, ended_by, not call.wait_for_completion, note)

    async def input_in_session(self, call: InputInSession, stop: Stop) -> Observation:
        """Type an answer into a command that runs and waits, then watch what comes."""
        terminal = await self._host.terminal(call.session_id)
        status = await terminal.status()
        if not status.busy:
            return Failed(error=f"Nothing runs in session {call.session_id}; use run_command.")
        start_time = time.monotonic()
        if not await self._is_silent(terminal, stop):
            return Failed(
                error=f"{shortened(status.command)!r} is still printing; input is taken after "
                f"{self._limits.silence_seconds:g} s of silence. Look with get_session_output."
            )
        answer = call.input_text if call.input_text.endswith("\n") else call.input_text + "\n"
        start = (await terminal.status()).log_bytes
        await terminal.type_text(answer)
        status = self._known.note(await self._watch_answer(terminal, start, stop))
        text = await output_lines(terminal, start, status.log_bytes, self._limits.characters)
        return _output(status, text, time.monotonic() - start_time, "asked" if status.busy else "")

    async def get_session_output(self, call: GetSessionOutput, _: Stop) -> Observation:
        """Lines counted back from the newest."""
        terminal = await self._host.terminal(call.session_id)
        status = self._known.note(await terminal.status())
        begin, note = self._known.begin(call.session_id), ""
        if call.since_timestamp:
            begin, note = self._output_start(call.session_id, float(call.since_timestamp))
        count = max(0, call.start_lines - call.end_lines)
        lines, earlier = await newest_lines(terminal, begin, status.log_bytes, call.start_lines)
        lines_shown = lines[: max(0, len(lines) - call.end_lines)]
        summary = f"{len(lines_shown)} lines"
        if call.end_lines:
            summary += f", the newest {min(call.end_lines, len(lines))} left out"
        if earlier and count:
            more = call.start_lines < MAX_WINDOW_LINES and len(lines) >= call.start_lines
            hint = "raise start_lines" if more else "too far back to be shown"
            summary += f"; earlier output exists, {hint}"
        return _window(
            status, OutputLines("\n".join(lines_shown), 0), f"({summary}) {note}".rstrip()
        )

    async def get_session_recent_output(self, call: GetSessionRecentOutput, _: Stop) -> Observation:
        """What was printed in the last seconds."""
        terminal = await self._host.terminal(call.session_id)
        status = self._known.note(await terminal.status())
        begin, note = self._output_start(call.session_id, time.time() - call.seconds)
        text = await output_lines(terminal, begin, status.log_bytes, self._limits.characters)
        return _window(status, text, f"(last {call.seconds} s) {note}".rstrip())

    async def budget_status(self, session_id: str) -> str:
        """What a session shows now, for a call whose outcome is unknown."""
        try:
            terminal = await self._host.terminal(session_id)
        except TerminalMissing:
            return f"There is no session {session_id}."
        status = self._known.note(await terminal.status())
        self._known.jobs.left_running(status)
        begin = self._known.begin(session_id)
        lines, _ = await newest_lines(terminal, begin, status.log_bytes, 30)
        ended = status.end or f"exit code {status.exit_code}"
        state = "still running" if status.busy else f"not running, {ended}"
        last = f"its last command {shortened(status.command)!r}: {state}"
        head = f"Session {session_id}, {last if status.command else 'nothing ran yet'}; it shows:"
        return "\n".join([head, *(lines or ["(no output)"])])

    async def last_line(self, session_id: str, start: int, end: int) -> str:
        """The last line that holds anything in a part of a session's log; empty without a log."""
        try:
            terminal = await self._host.terminal(session_id)
            lines, _ = await newest_lines(terminal, start, end, _LAST_LINES)
        except (HoustonError, OSError):  # closed, or its host is away
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")

    async def _close(self, name: str) -> None:
        terminal = await self._host.terminal(name)
        await terminal.close()
        self._known.closed(await terminal.status())

    async def _open(self, name: str) -> tuple[HostTerminal, str]:
        """A session with a living shell, and what to say of one that had ended."""
        try:
            end = self._known.note(await (await self._host.terminal(name)).status()).end
        except TerminalMissing:
            end = ""
        terminal = await self._host.terminal(name, create=True)
        self._known.note(await terminal.status())
        return terminal, _REOPENED.format(end=end) if end else ""

    def _output_start(self, name: str, at: float) -> tuple[int, str]:
        since = self._known.since(name, at)
        if since.known_from <= at:
            return since.offset, ""
        clock = time.strftime("%H:%M:%SZ", time.gmtime(since.known_from))
        return since.offset, f"Times before {clock} are not known; this is the output since then."

    async def _is_silent(self, terminal: HostTerminal, stop: Stop) -> bool:
        """Whether the command has been silent long enough; gives it one such while to be so."""
        needed = self._limits.silence_seconds
        before = await terminal.status()
        missing = needed - (time.time() - before.last_output)
        if missing <= 0:
            return True
        await terminal.wait(min(missing + 0.05, needed), stop.event)
        status, now = await terminal.status(), time.time()
        if status.last_output > now:  # the clock was set back, or the host's is ahead of ours
            return status.log_bytes == before.log_bytes
        return now - status.last_output >= needed

    async def _watch_answer(self, terminal: HostTerminal, start: int, stop: Stop) -> TerminalStatus:
        """Wait until the command ends, or has printed something and is quiet again."""
        printed_at = time.monotonic()
        deadline, size = printed_at + min(_ANSWER_SECONDS, self._limits.command_seconds), start
        while True:
            status = await terminal.wait(0.1, stop.event)
            if status.log_bytes != size:
                size, printed_at = status.log_bytes, time.monotonic()
            answered = size > start and time.monotonic() - printed_at > _QUIET_SECONDS
            if not status.busy or answered or stop.event.is_set() or time.monotonic() > deadline:
                return status


def _busy_error(session_id: str, command: str) -> Failed:
    return Failed(
        error=f"Session {session_id} is busy with {shortened(command)!r}; the new command was not "
        "started. Wait, use another session_id, or kill_session_processes."
    )


def _output(
    status: TerminalStatus,
    text: OutputLines,
    waited: float,
    ended_by: str,
    aside: bool = False,
    note: str = "",
) -> CommandOutput:
    failed = not status.busy and status.exit_code not in (0, None)
    error = f"exit code {status.exit_code}" if failed else ""
    later = "" if status.alive else _ENDED
    later = later or _unlogged(status)
    return CommandOutput(
        success=not failed and status.alive,
        error=f"the session is dead: {status.end}" if status.end else error,
        session_id=status.name,
        running=status.busy,
        exit_code=status.exit_code,
        async_execution=aside,
        execution_time=round(waited, 3),
        ended_by=ended_by,
        output_bytes=status.log_bytes,
        cut_bytes=text.cut_bytes,
        output=text.text,
        end=status.end,
        note=f"{note} {later}".strip(),
    )


def _window(status: TerminalStatus, text: OutputLines, note: str) -> CommandOutput:
    return CommandOutput(
        session_id=status.name,
        running=status.busy,
        exit_code=status.exit_code,
        output_bytes=status.log_bytes,
        cut_bytes=text.cut_bytes,
        window=True,
        end=status.end,
        output=text.text,
        note=f"{note} {_unlogged(status)}".strip(),
    )


def _unlogged(status: TerminalStatus) -> str:
    if not status.unlogged:
        return ""
    return f"Output is not recorded now: {status.unlogged}; free some, it then goes on."
