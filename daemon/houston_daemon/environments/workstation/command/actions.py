"""The twelve command actions: their arguments, bounds and one-line descriptions."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments

MAIN = "main"
"""The session that commands use when none is named."""

Session = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=24,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,23}$",
        description="Name of the session.",
    ),
]
MOST_LINES = 100_000
Lines = Annotated[int, Meta(ge=0, le=MOST_LINES)]


class CommandAction(Arguments, frozen=True, kw_only=True):
    """Base of the command actions."""

    family: ClassVar[str] = "command"


class CreateSession(CommandAction, frozen=True, kw_only=True):
    """Open a terminal session; run_command also opens one that is new."""

    name: ClassVar[str] = "create_session"
    session_id: Session


class ListSessions(CommandAction, frozen=True, kw_only=True):
    """List sessions and what runs in them."""

    name: ClassVar[str] = "list_sessions"


class RunCommand(CommandAction, frozen=True, kw_only=True):
    """Run a shell command; a long one is left running."""

    name: ClassVar[str] = "run_command"
    command: Annotated[
        str, Meta(min_length=1, max_length=2_000, description="Shell command, bash.")
    ]
    session_id: Session = MAIN
    wait_for_completion: Annotated[
        bool, Meta(description="false: return at once and leave it running.")
    ] = True


class InputInSession(CommandAction, frozen=True, kw_only=True):
    """Answer a prompt of the running command; Enter is added."""

    name: ClassVar[str] = "input_in_session"
    input_text: Annotated[str, Meta(max_length=1_000, description="What to type.")]
    session_id: Session = MAIN


class GetSessionOutput(CommandAction, frozen=True, kw_only=True):
    """Show output lines, counted back from the newest."""

    name: ClassVar[str] = "get_session_output"
    session_id: Session = MAIN
    start_lines: Annotated[Lines, Meta(description="First line, counted from the end.")] = 50
    end_lines: Annotated[Lines, Meta(description="Lines left out at the end.")] = 0
    since_timestamp: Annotated[
        int, Meta(ge=0, le=99_999_999_999, description="Unix time; only output after it.")
    ] = 0


class GetSessionRecentOutput(CommandAction, frozen=True, kw_only=True):
    """Show output of the last seconds."""

    name: ClassVar[str] = "get_session_recent_output"
    session_id: Session = MAIN
    seconds: Annotated[int, Meta(ge=1, le=86_400, description="How far back.")] = 10


class GetSessionStatus(CommandAction, frozen=True, kw_only=True):
    """Tell whether a session is alive and busy."""

    name: ClassVar[str] = "get_session_status"
    session_id: Session = MAIN


class CheckSessionIdle(CommandAction, frozen=True, kw_only=True):
    """Tell whether nothing runs in a session."""

    name: ClassVar[str] = "check_session_idle"
    session_id: Session = MAIN


class ClearSessionBuffer(CommandAction, frozen=True, kw_only=True):
    """Hide a session's output so far."""

    name: ClassVar[str] = "clear_session_buffer"
    session_id: Session = MAIN


class CloseSession(CommandAction, frozen=True, kw_only=True):
    """Close a session and end what runs in it."""

    name: ClassVar[str] = "close_session"
    session_id: Session


class CloseAllSessions(CommandAction, frozen=True, kw_only=True):
    """Close every session."""

    name: ClassVar[str] = "close_all_sessions"


class KillSessionProcesses(CommandAction, frozen=True, kw_only=True):
    """End the running command; the session stays."""

    name: ClassVar[str] = "kill_session_processes"
    session_id: Session = MAIN
    force: Annotated[bool, Meta(description="true: kill at once (SIGKILL).")] = False


COMMAND_ACTIONS: tuple[type[CommandAction], ...] = (
    CreateSession,
    ListSessions,
    RunCommand,
    InputInSession,
    GetSessionOutput,
    GetSessionRecentOutput,
    GetSessionStatus,
    CheckSessionIdle,
    ClearSessionBuffer,
    CloseSession,
    CloseAllSessions,
    KillSessionProcesses,
)
