"""What an environment needs of a machine (terminals, processes, files, snapshots), and its errors.

A host knows nothing of rollouts' steps or of models. `local_host` is this machine, `ssh` another;
there every call may raise HostAway. All that a rollout owns is stored under `<host
root>/rollouts/<rollout>/`: `workspace/` (what the agent sees), `shadow/` (snapshots), `terminals/`
(byte logs, command files).
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from houston_daemon.hosts.resource_limits import LimitHit
from houston_shared.errors import Busy, ExitCode, HoustonError


class NeedsPerson(HoustonError):
    """Only a person can help, on the host: until then the rollout is paused, never failed."""


class WorkspaceGone(NeedsPerson):
    """The workspace that the rollout has worked in is not here (any more)."""

    def __init__(self, workspace: Path) -> None:
        folder = workspace.parent
        super().__init__(
            f"The workspace {workspace} is gone; it was there when this rollout last ran.",
            "The rollout waits: a fresh copy would not have the agent's work.",
            f"Put {folder} back (for a restored home, copy it from the old machine), then: "
            f"houston rollout resume {folder.name}; or give it up: houston rollout cancel "
            f"{folder.name}",
        )


CleanupExtent = Literal["processes", "files", "snapshots"]
"""How much of a rollout that is over goes; each includes the one before."""


@dataclass(frozen=True, slots=True)
class FreedSpace:
    """What cleaning up after a rollout gave."""

    bytes: int
    """That were freed."""
    left: str = ""
    """Why something is left that should have gone; empty when nothing is."""


class HostRootMissing(NeedsPerson):
    """The host root, where this rollout keeps its files, cannot be used."""

    def __init__(self, folder: Path, problem: OSError) -> None:
        super().__init__(
            f"The folder {folder} cannot be made: {problem.strerror}.",
            "The rollout waits: its files must stay in the folder that it was started with.",
            f"Create it for the daemon's user, then: houston rollout resume {folder.name}",
        )


class RolloutHeldElsewhere(NeedsPerson):
    """Another home drives the rollout's folder, or another worker of this one."""

    def __init__(self, note: Path, home: str, running: bool) -> None:
        rollout = note.parent.name
        holder = f"the home {home}" if home else "another process"
        does = "is at work" if running else "has a rollout of that name"
        super().__init__(
            f"The workspace of {rollout} is used elsewhere: {holder} {does}.",
            "Nothing was done in it: two daemons would work in one workspace.",
            f"Cancel {rollout} there, or take it over for good by removing {note}; then: "
            f"houston rollout resume {rollout}",
            ExitCode.BUSY,
        )


class TerminalMissing(HoustonError):
    """No terminal of that name was ever opened, or it was closed."""

    def __init__(self, name: str) -> None:
        self.words = (name,)
        super().__init__(
            f"There is no terminal named {name!r}.", next="Create it first, or list the terminals."
        )


class TerminalBusy(Busy):
    """A command still runs in the foreground of the terminal."""

    def __init__(self, name: str, command: str) -> None:
        self.words = (name, command)
        shown_command = command if len(command) <= 80 else command[:80] + "…"
        super().__init__(
            f"Terminal {name!r} still runs {shown_command!r}.",
            "The new command was not started.",
            "Wait for it, signal it, or use another terminal.",
        )


class TerminalDead(HoustonError):
    """The shell of the terminal has ended or does not answer."""

    def __init__(self, name: str, reason: str) -> None:
        self.words = (name, reason)
        super().__init__(
            f"Terminal {name!r} is dead: {reason}.",
            "What it printed is kept, but nothing can run in it.",
            "Create it again.",
        )


class HostAway(Busy):
    """A host cannot be reached now, or went away while something ran there."""

    def __init__(
        self,
        host: str,
        reason: str,
        back: Callable[[], Coroutine[Any, Any, None]],
        cut: bool = False,
        needed: NeedsPerson | None = None,
    ) -> None:
        """reason: in words; back: returns when the host can be reached, or is worth another try.
        cut: something was under way there, and what came of it is not known. needed: what a person
        has to see to first; then it is not tried again by itself.
        """
        self.host, self.why, self.back, self.cut = host, reason, back, cut
        self.needed = needed
        event_text = "went away while this ran there" if cut else "cannot be reached"
        super().__init__(
            f"The host {host} {event_text}: {reason}.",
            "The outcome is unknown." if cut else "Nothing was done there.",
            "It is tried again all the while; its terminals and what runs in them go on.",
        )


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """A process that ran to its end or was stopped."""

    exit_code: int | None
    """None when it was stopped for time."""
    stdout: bytes
    stderr: bytes
    seconds: float
    cut: bool = False
    """Whether output beyond the limit was dropped."""


@dataclass(frozen=True, slots=True)
class BackgroundCommand:
    """What was started in a terminal outside its foreground: with `&`, `nohup` or `setsid`."""

    key: str
    """Unique on its host for good: process group and start time."""
    command: str
    """As the process is called, or as it was given to the shell where it is a part of that."""
    began: float
    """Unix time of its start."""
    ended: float = 0.0
    """Unix time at which it was seen to be gone; 0 while it runs."""
    exit_code: int | None = None
    """As the shell tells; None while it runs, and where the shell has not told."""
    adopted: bool = False
    """Whether it left its shell, which then cannot tell how it ends."""
    output: str = ""
    """The file that it prints to, as the agent sees it; empty for the terminal."""
    last_line: str = ""
    """The last line of that file, when it was last looked at."""


@dataclass(frozen=True, slots=True)
class TerminalStatus:
    """How a terminal stands now."""

    name: str
    alive: bool
    busy: bool
    """A command is running in the foreground."""
    exit_code: int | None
    """Exit code of the last command that ended, None before the first or while busy."""
    command: str
    """The last command, empty before the first."""
    log_bytes: int
    """Length of the byte log."""
    last_output: float
    """Unix time of the last byte, 0 when there was none."""
    end: str = ""
    """How its shell ended, in words; empty while it is alive."""
    unlogged: str = ""
    """Why its output is not recorded now, in words; empty while it is."""
    log_start: int = 0
    """Log offset of the first output of the last command."""
    command_began: float = 0.0
    """Unix time at which the last command was given; 0 before the first."""
    command_ended: float = 0.0
    """Unix time of its end; 0 while it runs."""
    background: tuple[BackgroundCommand, ...] = ()
    """What was started apart from the foreground and outlived its command, oldest first."""


class HostTerminal(Protocol):
    """One tmux session; outlives this process. Busy while a command runs in its foreground."""

    name: str

    async def run(self, command: str) -> int:
        """Start `command` (written to a file and sourced); return its log offset at the start.

        Raises TerminalBusy while another command runs.
        """
        ...

    async def wait(self, seconds: float, stop: asyncio.Event) -> TerminalStatus:
        """Wait until the command ends, `seconds` pass or `stop` is set; never ends the command."""
        ...

    async def type_text(self, text: str) -> None:
        """Type `text` into whatever runs in the foreground, as a person would at a prompt."""
        ...

    async def status(self) -> TerminalStatus:
        """How the terminal stands now."""
        ...

    async def lines(self, start: int, end: int | None = None) -> list[str]:
        """The log between two byte offsets as screen lines (carriage returns and escapes applied).

        The nonce marks never show.
        """
        ...

    async def signal(self, name: Literal["INT", "TERM", "KILL"]) -> list[str]:
        """Signal the processes of the foreground command, never the shell; returns their names."""
        ...

    async def close(self) -> None:
        """End the session and everything that runs in it; the log stays."""
        ...


class Snapshots(Protocol):
    """The rollout's shadow repository: one commit per step that changed files."""

    async def take(
        self, message: str, hints: Sequence[str] = (), mark: bool = False, since: str = ""
    ) -> "Snapshot":
        """Record the workspace as it is.

        hints: changed paths, looked at first. A stat scan decides in any case.
        mark: also store large files (evaluation, branch, fork).
        since: the snapshot whose changes were reported last, if that may not be the last one taken
        (a worker ended between taking and reporting); then all changes after it are reported.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One file that differs from the snapshot before."""

    path: str
    """Relative to the workspace, with `/`."""
    kind: Literal["added", "changed", "removed"]
    added: int
    """Lines added; 0 for files without text."""
    removed: int
    """Lines removed; 0 for files without text."""
    diff: str
    """Unified diff, cut at 16 KB (the cut says so); empty for files without text."""
    note: str = ""
    """Why there is no diff: `binary`, `large`, `still being written`, …"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A workspace state and what changed since the one before."""

    commit: str
    """Object id of the shadow commit; that of the one before when nothing changed."""
    files: tuple[FileDiff, ...]
    more: int = 0
    """Changed files beyond the first 200, which are not listed."""


class RolloutHost(Protocol):
    """One machine, for one rollout."""

    name: str
    workspace: Path
    """The workspace as seen from outside the sandbox."""
    inside: str
    """The workspace's path as the agent sees it: /workspace, or the real one without a sandbox."""

    async def prepare(self, source: Path | None, begun: bool = False) -> None:
        """Make the rollout's folders; copy `source` into the workspace the first time only.

        begun: the rollout has steps already. Raises HoustonError when a workspace that was made is
        gone: it is never silently made again.
        """
        ...

    async def terminal(self, name: str, create: bool = False) -> HostTerminal:
        """Find (after a restart too) or create a terminal. Raises TerminalMissing."""
        ...

    async def terminals(self) -> list[TerminalStatus]:
        """All terminals that were opened and not closed, by name."""
        ...

    async def spawn(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        writable: bool = True,
        extra_read: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
        stop: asyncio.Event | None = None,
        output_limit: int = 4_000_000,
        cwd: str = "",
        network: bool = True,
        copied: bool = False,
    ) -> ProcessResult:
        """Run a process in a separate sandbox.

        writable=False maps workspace and `extra_read` (at their own paths) read-only, and adds a
        scratch folder (evaluators: they execute what the agent wrote).
        cwd: as the process sees it; by default the workspace, or the scratch folder.
        network=False gives the sandbox no network, even if the task allows one.
        copied: with writable=False, the process may change its view of the workspace, which is a
        copy; only on this machine.
        """
        ...

    async def present(self) -> bool:
        """Whether the workspace is there: somebody outside may have removed it."""
        ...

    async def unrestored_paths(self) -> Sequence[str]:
        """Of a branch: paths of its past that its workspace lacks."""
        ...

    async def take_limit_hits(self) -> Sequence[LimitHit]:
        """Limits that the rollout's processes hit since the last call, to tell the agent."""
        ...

    @property
    def snapshots(self) -> Snapshots:
        """The rollout's shadow repository."""
        ...

    async def close(self) -> None:
        """Let go of the host; terminals go on."""
        ...

    async def destroy_terminals(self) -> None:
        """End every terminal of the rollout (when it has finished, failed or was cancelled)."""
        ...
