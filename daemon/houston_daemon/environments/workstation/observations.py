"""The typed observations of the workstation: what an action found, before it is text.

Rules and exports read these fields, never prose. `bulk` names the fields whose content the text
already holds, so that a stored result keeps every byte once. Rendering lives in `render.py`.
"""

from typing import Any, ClassVar

import msgspec


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every observation."""

    kind: ClassVar[str]
    bulk: ClassVar[tuple[str, ...]] = ()
    success: bool = True
    error: str = ""
    """What went wrong, one sentence; empty when nothing did."""

    def fields(self) -> dict[str, Any]:
        """The typed fields of its kind, without success, bulk, and an empty error."""
        left_out = {"success", *self.bulk, *(() if self.error else ("error",))}
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: _text(value) for name, value in fields.items() if name not in left_out}


def _text(value: Any) -> Any:
    """`value` with U+FFFD for lone surrogates (file names that are no UTF-8 have them)."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return [_text(item) for item in value] if isinstance(value, list | tuple) else value


class Failed(Observation, frozen=True, kw_only=True):
    """An action that could not be done; `error` says why and what to do instead."""

    kind: ClassVar[str] = "error"
    success: bool = False


class Interrupted(Observation, frozen=True, kw_only=True):
    """A call whose worker ended while it ran: its outcome is unknown."""

    kind: ClassVar[str] = "interrupted"
    bulk: ClassVar[tuple[str, ...]] = ("now",)
    success: bool = False
    now: str
    """What the terminal or the file shows now."""


class Output(Observation, frozen=True, kw_only=True):
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


class Sessions(Observation, frozen=True, kw_only=True):
    """The sessions of the rollout."""

    kind: ClassVar[str] = "sessions"
    sessions: tuple[SessionEntry, ...]


class Session(Observation, frozen=True, kw_only=True):
    """What became of one session, or of all."""

    kind: ClassVar[str] = "session"
    session_id: str
    change: str
    """`created`, `found` (was there already), `cleared`, `closed`."""
    closed: tuple[str, ...] = ()


class Status(Observation, frozen=True, kw_only=True):
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


class Idle(Observation, frozen=True, kw_only=True):
    """Whether a session runs nothing."""

    kind: ClassVar[str] = "idle"
    session_id: str
    is_idle: bool
    command: str = ""


class Killed(Observation, frozen=True, kw_only=True):
    """What was signalled."""

    kind: ClassVar[str] = "killed"
    session_id: str
    signal_used: str
    killed_processes: tuple[str, ...]
    running: bool
    """Whether the command still runs a moment later."""


class FileWindow(Observation, frozen=True, kw_only=True):
    """Numbered lines of one file."""

    kind: ClassVar[str] = "file"
    bulk: ClassVar[tuple[str, ...]] = ("content", "note")
    path: str
    change: str = ""
    """`` (only shown), `created`, `replaced` (a whole file), `edited`."""
    first_line: int = 0
    last_line: int = 0
    total_lines: int | None = None
    """None when the file is too large to count."""
    size: int = 0
    """Bytes."""
    binary: bool = False
    invalid_utf8: bool = False
    """Whether the window holds bytes that are no UTF-8."""
    blind: bool = False
    """A change of a file that was not shown since it last changed."""
    content: str = ""
    note: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a folder."""

    name: str
    type: str
    """`file`, `folder`, `link`, `other`."""
    size: int
    target: str = ""


class Listing(Observation, frozen=True, kw_only=True):
    """One folder."""

    kind: ClassVar[str] = "listing"
    bulk: ClassVar[tuple[str, ...]] = ("entries",)
    path: str
    total: int
    hidden: int
    """Names with a leading dot that were left out."""
    entries: tuple[Entry, ...]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One line that holds the term."""

    path: str
    line: int
    text: str


class Matches(Observation, frozen=True, kw_only=True):
    """Lines that hold a term."""

    kind: ClassVar[str] = "search"
    bulk: ClassVar[tuple[str, ...]] = ("matches", "note")
    query: str
    path: str
    total_results: int
    complete: bool
    """False when a limit of time or number ended the search."""
    matches: tuple[Match, ...]
    note: str = ""


class Found(Observation, frozen=True, kw_only=True):
    """Files whose name fits."""

    kind: ClassVar[str] = "found"
    bulk: ClassVar[tuple[str, ...]] = ("paths",)
    query: str
    path: str
    total_results: int
    complete: bool
    paths: tuple[str, ...]


class Info(Observation, frozen=True, kw_only=True):
    """The open file."""

    kind: ClassVar[str] = "info"
    path: str
    """Empty when none is open."""
    first_line: int = 0
    last_line: int = 0
    total_lines: int | None = None
    size: int = 0
    modified: float = 0.0
    """Unix time."""


class Thought(Observation, frozen=True, kw_only=True):
    """A thought was written down."""

    kind: ClassVar[str] = "think"


class Slept(Observation, frozen=True, kw_only=True):
    """A sleep has ended."""

    kind: ClassVar[str] = "sleep"
    asked: float
    slept: float
    ended_by: str
    """`time`, `wake`, `interrupt`."""
    away: bool = False
    """Whether the daemon was away during the sleep."""


class Scored(Observation, frozen=True, kw_only=True):
    """What an evaluation gave."""

    kind: ClassVar[str] = "eval"
    bulk: ClassVar[tuple[str, ...]] = ("metrics", "left")
    overall_score: float | None
    """0 to 100."""
    state: str
    """`scored`, `format` (the evaluator's output is wrong), `failed` (crash, time, interrupted)."""
    counted: bool
    """Whether it used up a submission."""
    seconds: float
    metrics: dict[str, Any] = {}
    left: int = 0
    """Submissions left after it."""
    detail: str = ""
    """The evaluator's last words on stderr: for people, never shown to the agent."""
    finished: bool = False
    """Whether it ends the rollout; named here so that no metric can say so."""

    def fields(self) -> dict[str, Any]:
        """Metrics stand beside the score; a metric cannot take the name of a field."""
        return {**self.metrics, **Observation.fields(self)}


class Finish(Observation, frozen=True, kw_only=True):
    """The agent says that it is done."""

    kind: ClassVar[str] = "finish"
    finished: bool
