"""What the command actions found, and how it reads."""

from typing import ClassVar

import msgspec

from houston_daemon.environments.typed_observation import Observation, Text, render


class CommandOutput(Observation, frozen=True, kw_only=True):
    """A command's output, or a window of a session's."""

    kind: ClassVar[str] = "command"
    bulk: ClassVar[tuple[str, ...]] = ("output", "note")
    session_id: str
    running: bool
    exit_code: int | None = None
    """None while the command runs and before the first."""
    async_execution: bool = False
    execution_time: float = 0.0
    """Seconds that the action waited."""
    ended_by: str = ""
    """What ended the waiting: nothing (the command), `limit`, `wake`, `interrupt`, `budget`, or
    `asked`, when the agent did not want to wait."""
    output_bytes: int = 0
    cut_bytes: int = 0
    """Bytes of the window that were not looked at."""
    window: bool = False
    """Whether this shows earlier output and not that of a command just given."""
    end: str = ""
    """How the session's shell ended; empty while it lives."""
    output: str = ""
    note: str = ""
    """What the window is, or what else stands in the way."""


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a list."""

    session_id: str
    is_alive: bool
    running: bool
    exit_code: int | None
    command: str
    """First line of the last command, cut at 80 characters."""
    end: str = ""
    """How its shell ended; empty while it lives."""
    host: str = ""
    """The host it is on, where the rollout has several."""


class SessionList(Observation, frozen=True, kw_only=True):
    """The sessions of the rollout."""

    kind: ClassVar[str] = "sessions"
    sessions: tuple[SessionEntry, ...]
    away: tuple[str, ...] = ()
    """Hosts that could not be asked, with the reason."""


class SessionChange(Observation, frozen=True, kw_only=True):
    """What became of one session, or of all."""

    kind: ClassVar[str] = "session"
    session_id: str
    change: str
    """`created`, `found` (was there already), `cleared`, `closed`."""
    closed: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    """Hosts that could not be reached, with the reason."""


class SessionStatus(Observation, frozen=True, kw_only=True):
    """How one session stands."""

    kind: ClassVar[str] = "status"
    session_id: str
    is_alive: bool
    running: bool
    exit_code: int | None
    command: str
    last_activity: float | None
    """Unix time of the last output; None when there was none."""
    silent_seconds: float | None
    output_bytes: int
    end: str = ""
    """How its shell ended; empty while it lives."""


class SessionIdle(Observation, frozen=True, kw_only=True):
    """Whether a session runs nothing."""

    kind: ClassVar[str] = "idle"
    session_id: str
    is_idle: bool
    command: str = ""


class ProcessesSignalled(Observation, frozen=True, kw_only=True):
    """What was signalled."""

    kind: ClassVar[str] = "killed"
    session_id: str
    signal_used: str
    killed_processes: tuple[str, ...]
    running: bool
    """Whether the command still runs a moment later."""
    shell_interrupted: bool = False
    """Whether there was no process but the shell's own loop, which was interrupted."""


@render.register
def _(result: CommandOutput) -> Text:
    hint = (
        f"get_session_output(session_id={result.session_id!r}, start_lines, end_lines) shows them"
    )
    body = result.output if result.output.strip() else "(no output)"
    return Text(_output_state(result), body, hint)


def _output_state(output: CommandOutput) -> str:
    where = f"[session {output.session_id}"
    if output.running:
        state = f"{where}: still running{_wait_note(output)}]"
    elif output.exit_code is None:
        state = f"{where}: {f'dead, {output.end}' if output.end else 'nothing ran yet'}]"
    else:
        state = f"{where}: exit code {output.exit_code}{_wait_note(output)}]"
    return f"{state} {output.note}".rstrip()


def _wait_note(output: CommandOutput) -> str:
    if output.window:
        return ""
    ended = {
        "": "",
        "limit": "; it goes on, look with get_session_output, or sleep",
        "wake": "; the waiting ended because a person spoke, the command goes on",
        "interrupt": "; the waiting was interrupted by a person, the command goes on",
        "budget": "; the waiting ended because the time budget is spent, the command goes on",
        "asked": "; started without waiting, look with get_session_output",
    }[output.ended_by]
    return f" after {output.execution_time:.1f} s{ended}"


@render.register
def _(result: SessionList) -> Text:
    if not result.sessions:
        return Text(f"No sessions. run_command opens one.{_unreachable_note(result.away)}")
    lines = [f"{_place(entry)}: {_entry_state(entry)}" for entry in result.sessions]
    return Text(f"Sessions ({len(lines)}):{_unreachable_note(result.away)}", "\n".join(lines))


def _place(entry: SessionEntry) -> str:
    return f"{entry.session_id} on {entry.host}" if entry.host else entry.session_id


def _unreachable_note(hosts: tuple[str, ...]) -> str:
    return f" (cannot be reached now: {', '.join(hosts)})" if hosts else ""


def _entry_state(entry: SessionEntry) -> str:
    if not entry.is_alive:
        return f"dead, {entry.end}"
    if entry.running:
        return f"running {entry.command!r}"
    if entry.exit_code is None:
        return "idle"
    return f"idle, last exit code {entry.exit_code} of {entry.command!r}"


@render.register
def _(result: SessionChange) -> Text:
    if result.closed or not result.session_id:
        closed = ", ".join(result.closed) or "there was no session"
        return Text(f"Closed: {closed}.{_unreachable_note(result.away)}")
    end_text = {
        "created": "is open",
        "found": "was open already",
        "cleared": "shows only new output from now on",
        "closed": "is closed",
    }[result.change]
    return Text(f"Session {result.session_id} {end_text}.")


@render.register
def _(result: SessionStatus) -> Text:
    runs = f"running {result.command!r}" if result.running else "idle"
    state = f"alive, {runs}" if result.is_alive else f"dead, {result.end}"
    code = f", last exit code {result.exit_code}" if result.exit_code is not None else ""
    quiet = "no output yet"
    if result.silent_seconds is not None:
        quiet = f"last output {result.silent_seconds:.0f} s ago"
    return Text(f"Session {result.session_id}: {state}{code}; {quiet}.")


@render.register
def _(result: SessionIdle) -> Text:
    state = "is idle" if result.is_idle else f"is busy with {result.command!r}"
    return Text(f"Session {result.session_id} {state}.")


@render.register
def _(result: ProcessesSignalled) -> Text:
    forced = result.signal_used == "SIGKILL"
    way = "close_session ends it with the session" if forced else "use force=true"
    still = f"; the command still runs, {way}" if result.running else ""
    if result.killed_processes:
        signal_text = f"sent {result.signal_used} to: {', '.join(result.killed_processes)}"
    elif result.shell_interrupted:
        signal_text = "it ran in the shell itself, which was interrupted"
    else:
        signal_text = "nothing was running, no signal was sent"
    return Text(f"Session {result.session_id}: {signal_text}{still}.")
