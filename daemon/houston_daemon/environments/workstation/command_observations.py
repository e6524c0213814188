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
    """What ended the waiting: nothing (the command), `limit`, `wake`, `interrupt`, or `asked`, when
    the agent did not want to wait."""
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
def _(one: CommandOutput) -> Text:
    how = f"get_session_output(session_id={one.session_id!r}, start_lines, end_lines) shows them"
    body = one.output if one.output.strip() else "(no output)"
    return Text(_output_state(one), body, how)


def _output_state(one: CommandOutput) -> str:
    where = f"[session {one.session_id}"
    if one.running:
        state = f"{where}: still running{_waited(one)}]"
    elif one.exit_code is None:
        state = f"{where}: {f'dead, {one.end}' if one.end else 'nothing ran yet'}]"
    else:
        state = f"{where}: exit code {one.exit_code}{_waited(one)}]"
    return f"{state} {one.note}".rstrip()


def _waited(one: CommandOutput) -> str:
    if one.window:
        return ""
    ended = {
        "": "",
        "limit": "; it goes on, look with get_session_output, or sleep",
        "wake": "; the waiting ended because a person spoke, the command goes on",
        "interrupt": "; the waiting was interrupted by a person, the command goes on",
        "budget": "; the waiting ended because the time budget is spent, the command goes on",
        "asked": "; started without waiting, look with get_session_output",
    }[one.ended_by]
    return f" after {one.execution_time:.1f} s{ended}"


@render.register
def _(one: SessionList) -> Text:
    if not one.sessions:
        return Text(f"No sessions. run_command opens one.{_away(one.away)}")
    lines = [f"{_place(entry)}: {_entry_state(entry)}" for entry in one.sessions]
    return Text(f"Sessions ({len(lines)}):{_away(one.away)}", "\n".join(lines))


def _place(entry: SessionEntry) -> str:
    return f"{entry.session_id} on {entry.host}" if entry.host else entry.session_id


def _away(hosts: tuple[str, ...]) -> str:
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
def _(one: SessionChange) -> Text:
    if one.closed or not one.session_id:
        closed = ", ".join(one.closed) or "there was no session"
        return Text(f"Closed: {closed}.{_away(one.away)}")
    said = {
        "created": "is open",
        "found": "was open already",
        "cleared": "shows only new output from now on",
        "closed": "is closed",
    }[one.change]
    return Text(f"Session {one.session_id} {said}.")


@render.register
def _(one: SessionStatus) -> Text:
    runs = f"running {one.command!r}" if one.running else "idle"
    state = f"alive, {runs}" if one.is_alive else f"dead, {one.end}"
    code = f", last exit code {one.exit_code}" if one.exit_code is not None else ""
    quiet = "no output yet"
    if one.silent_seconds is not None:
        quiet = f"last output {one.silent_seconds:.0f} s ago"
    return Text(f"Session {one.session_id}: {state}{code}; {quiet}.")


@render.register
def _(one: SessionIdle) -> Text:
    state = "is idle" if one.is_idle else f"is busy with {one.command!r}"
    return Text(f"Session {one.session_id} {state}.")


@render.register
def _(one: ProcessesSignalled) -> Text:
    forced = one.signal_used == "SIGKILL"
    way = "close_session ends it with the session" if forced else "use force=true"
    still = f"; the command still runs, {way}" if one.running else ""
    if one.killed_processes:
        done = f"sent {one.signal_used} to: {', '.join(one.killed_processes)}"
    elif one.shell_interrupted:
        done = "it ran in the shell itself, which was interrupted"
    else:
        done = "nothing was running, no signal was sent"
    return Text(f"Session {one.session_id}: {done}{still}.")
