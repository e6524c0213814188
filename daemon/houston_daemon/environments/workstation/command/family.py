"""Command actions over the host's terminals: run, answer, look at output.

A command that needs longer than the task's `command_seconds` is left running, never ended. Sessions
are created when a command first names them. Output is read in windows, whatever its size.
"""

import time
from dataclasses import dataclass

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Stop
from houston_daemon.environments.workstation.command import actions as args
from houston_daemon.environments.workstation.command.observations import Output
from houston_daemon.environments.workstation.command.output import Printed, newest, printed
from houston_daemon.environments.workstation.command.session_actions import Doing, SessionActions
from houston_daemon.environments.workstation.command.sessions import Sessions, shortened
from houston_daemon.hosts.errors import TerminalBusy, TerminalMissing
from houston_daemon.hosts.protocol import Host, Terminal, TerminalStatus

_GLANCE_SECONDS = 0.3
"""How long a command that is not waited for is watched, so that an immediate error shows."""
_ANSWER_SECONDS = 5.0
"""Most that an answer to a prompt is watched."""
_QUIET_SECONDS = 0.5
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


class CommandActions:
    """The twelve command actions."""

    def __init__(self, host: Host, known: Sessions, limits: CommandLimits) -> None:
        self._host = host
        self._known = known
        self._limits = limits
        self._actions: dict[type[Arguments], Doing] = {
            **SessionActions(host, known).actions,
            args.RunCommand: self.run_command,
            args.InputInSession: self.input_in_session,
            args.GetSessionOutput: self.get_session_output,
            args.GetSessionRecentOutput: self.get_session_recent_output,
        }

    async def act(self, arguments: args.CommandAction, stop: Stop) -> Observation:
        """Run one action. Raises TerminalMissing, TerminalBusy, TerminalDead."""
        return await self._actions[type(arguments)](arguments, stop)

    async def run_command(self, call: args.RunCommand, stop: Stop) -> Observation:
        """Start a command and wait for it as long as the task allows."""
        terminal, note = await self._open(call.session_id)
        begun = time.monotonic()
        try:
            start = await terminal.run(call.command)
        except TerminalBusy:
            status = await terminal.status()
            return _busy(call.session_id, status.command)
        patience = self._limits.command_seconds if call.wait_for_completion else _GLANCE_SECONDS
        status = self._known.note(await terminal.wait(patience, stop.event))
        waited = time.monotonic() - begun
        text = await printed(terminal, start, status.log_bytes, self._limits.characters)
        ended_by = ""
        if status.busy:
            ended_by = "limit" if call.wait_for_completion else "asked"
            ended_by = (stop.reason or "wake") if stop.event.is_set() else ended_by
        return _output(status, text, waited, ended_by, not call.wait_for_completion, note)

    async def input_in_session(self, call: args.InputInSession, stop: Stop) -> Observation:
        """Type an answer into a command that runs and waits, then watch what comes."""
        terminal = await self._host.terminal(call.session_id)
        status = await terminal.status()
        if not status.busy:
            return _failed(f"Nothing runs in session {call.session_id}; use run_command.")
        begun = time.monotonic()
        if not await self._is_silent(terminal, stop):
            return _failed(
                f"{shortened(status.command)!r} is still printing; input is taken after "
                f"{self._limits.silence_seconds:g} s of silence. Look with get_session_output."
            )
        answer = call.input_text if call.input_text.endswith("\n") else call.input_text + "\n"
        start = (await terminal.status()).log_bytes
        await terminal.type_text(answer)
        status = self._known.note(await self._watch_answer(terminal, start, stop))
        text = await printed(terminal, start, status.log_bytes, self._limits.characters)
        return _output(status, text, time.monotonic() - begun, "asked" if status.busy else "")

    async def get_session_output(self, call: args.GetSessionOutput, _: Stop) -> Observation:
        """Lines counted back from the newest."""
        terminal = await self._host.terminal(call.session_id)
        status = self._known.note(await terminal.status())
        begin, note = self._known.begin(call.session_id), ""
        if call.since_timestamp:
            begin, note = self._since(call.session_id, float(call.since_timestamp))
        count = max(0, call.start_lines - call.end_lines)
        lines, earlier = await newest(terminal, begin, status.log_bytes, call.start_lines)
        shown = lines[: len(lines) - call.end_lines] if call.end_lines else lines
        what = f"{len(shown)} lines"
        if call.end_lines:
            what += f", the newest {min(call.end_lines, len(lines))} left out"
        if earlier and count:
            more = call.start_lines < args.MOST_LINES and len(lines) >= call.start_lines
            hint = "raise start_lines" if more else "too far back to be shown"
            what += f"; earlier output exists, {hint}"
        return _window(status, Printed("\n".join(shown), 0), f"({what}) {note}".rstrip())

    async def get_session_recent_output(
        self, call: args.GetSessionRecentOutput, _: Stop
    ) -> Observation:
        """What was printed in the last seconds."""
        terminal = await self._host.terminal(call.session_id)
        status = self._known.note(await terminal.status())
        begin, note = self._since(call.session_id, time.time() - call.seconds)
        text = await printed(terminal, begin, status.log_bytes, self._limits.characters)
        return _window(status, text, f"(last {call.seconds} s) {note}".rstrip())

    async def standing(self, session_id: str) -> str:
        """What a session shows now, for a call whose outcome is unknown."""
        try:
            terminal = await self._host.terminal(session_id)
        except TerminalMissing:
            return f"There is no session {session_id}."
        status = self._known.note(await terminal.status())
        begin = self._known.begin(session_id)
        lines, _ = await newest(terminal, begin, status.log_bytes, 30)
        ended = status.end or f"exit code {status.exit_code}"
        state = "still running" if status.busy else f"not running, {ended}"
        last = f"its last command {shortened(status.command)!r}: {state}"
        head = f"Session {session_id}, {last if status.command else 'nothing ran yet'}; it shows:"
        return "\n".join([head, *(lines or ["(no output)"])])

    async def _open(self, name: str) -> tuple[Terminal, str]:
        """A session with a living shell, and what to say of one that had ended."""
        try:
            end = (await (await self._host.terminal(name)).status()).end
        except TerminalMissing:
            end = ""
        terminal = await self._host.terminal(name, create=True)
        self._known.note(await terminal.status())
        return terminal, _REOPENED.format(end=end) if end else ""

    def _since(self, name: str, at: float) -> tuple[int, str]:
        since = self._known.since(name, at)
        if since.known_from <= at:
            return since.offset, ""
        clock = time.strftime("%H:%M:%SZ", time.gmtime(since.known_from))
        return since.offset, f"Times before {clock} are not known; this is the output since then."

    async def _is_silent(self, terminal: Terminal, stop: Stop) -> bool:
        """Whether the command has been silent long enough; gives it one such while to be so."""
        for attempt in range(2):
            status = await terminal.status()
            missing = self._limits.silence_seconds - (time.time() - status.last_output)
            if missing <= 0:
                return True
            if attempt == 0:
                await terminal.wait(min(missing + 0.05, self._limits.silence_seconds), stop.event)
        return False

    async def _watch_answer(self, terminal: Terminal, start: int, stop: Stop) -> TerminalStatus:
        """Wait until the command ends, or has printed something and is quiet again."""
        deadline = time.monotonic() + min(_ANSWER_SECONDS, self._limits.command_seconds)
        while True:
            status = await terminal.wait(0.1, stop.event)
            quiet = time.time() - status.last_output > _QUIET_SECONDS
            answered = status.log_bytes > start and quiet
            if not status.busy or answered or stop.event.is_set() or time.monotonic() > deadline:
                return status


def _failed(error: str) -> Failed:
    return Failed(error=error)


def _busy(session_id: str, command: str) -> Failed:
    return Failed(
        error=f"Session {session_id} is busy with {shortened(command)!r}; the new command was not "
        "started. Wait, use another session_id, or kill_session_processes."
    )


def _output(
    status: TerminalStatus,
    text: Printed,
    waited: float,
    ended_by: str,
    aside: bool = False,
    note: str = "",
) -> Output:
    failed = not status.busy and status.exit_code not in (0, None)
    error = f"exit code {status.exit_code}" if failed else ""
    later = "" if status.alive else _ENDED
    later = later or _unlogged(status)
    return Output(
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


def _window(status: TerminalStatus, text: Printed, note: str) -> Output:
    return Output(
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
