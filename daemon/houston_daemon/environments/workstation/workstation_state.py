"""What a workstation remembers between calls, so that a restarted worker can continue.

One JSON file under the rollout's folder on the host, replaced atomically after a change. It holds
what is stored nowhere else: the open file, which output of a session is hidden, whether the last
action was a thought, and the closing of a step until the next call runs (so that closing the same
step twice, around a crash, gives the same bytes).
"""

from pathlib import Path

import msgspec

from houston_daemon.environments.environment_protocol import Closing
from houston_daemon.environments.rollout_state import load_state
from houston_shared import atomic_file
from houston_shared.faults import point
from houston_shared.records import FileChange, JobReport, TerminalSpan

_MAX_SEEN_FILES = 500


class OpenFile(msgspec.Struct, kw_only=True):
    """The file window."""

    path: str
    first: int
    last: int
    """Last line that was shown."""
    lines: int
    """Lines that the window asks for (context_lines)."""


class OpenPage(msgspec.Struct, kw_only=True):
    """The open web page, and where the agent is in it."""

    file: str
    """Name of the file beside this one that holds the page."""
    first: int = 1
    last: int = 0
    """Lines of the window that was shown."""
    keyword: str = ""
    """What was searched in it last."""
    find: int = 0
    """Which find was shown, from 1."""


class KeptClosing(msgspec.Struct, frozen=True, kw_only=True):
    """What closing a step found."""

    step: int
    snapshot: str
    files: tuple[FileChange, ...]
    more_files: int
    spans: tuple[TerminalSpan, ...]
    notes: tuple[str, ...] = ()
    snapshots: dict[str, str] = {}

    def closing(self) -> Closing:
        """As the loop takes it."""
        return Closing(
            self.snapshot, self.files, self.more_files, self.spans, self.notes, self.snapshots
        )


class WorkstationState(msgspec.Struct, kw_only=True):
    """Everything in the file."""

    open_file: OpenFile | None = None
    page: OpenPage | None = None
    seen: dict[str, str] = {}
    """Path → version (inode, size, time) of a file when the agent last saw it."""
    cleared: dict[str, int] = {}
    """Session → log offset before which output is hidden."""
    last_action: str = ""
    ends: dict[str, int] = {}
    """Session → log offset up to which spans were recorded."""
    finals: dict[str, int] = {}
    """Session closed in the open step → where its log ended."""
    marked_at: float = 0.0
    """Unix time at which `ends` was taken."""
    pending: tuple[FileChange, ...] = ()
    """Changes that a snapshot within the open step already took (before an evaluation)."""
    more_pending: int = 0
    told: str = ""
    """The snapshot up to which changes are in a closed step or pending: a worker that ends between
    taking a snapshot and saving this leaves its successor to tell what changed."""
    closing: KeptClosing | None = None
    notes: tuple[str, ...] = ()
    """What the agent is told with the next closing."""
    jobs: dict[str, JobReport] = {}
    """By id, commands that outlived their call and have not ended."""
    beside: dict[str, "WorkstationState"] = {}
    """The same for each host but the first: of it only what belongs to one host."""


class StateFile:
    """Reads once, writes after changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""
        self.now = WorkstationState()

    def load(self) -> bool:
        """Find the state again; False when there is none: the rollout starts for the first time.

        Raises HoustonError where it cannot be read.
        """
        state = load_state(self._path, WorkstationState)
        if state is None:
            return False
        self.now, self._written = state, msgspec.json.encode(state)
        return True

    def save(self) -> None:
        """Write the state if it changed: beside, then in place of the old one."""
        while len(self.now.seen) > _MAX_SEEN_FILES:
            del self.now.seen[next(iter(self.now.seen))]
        data = msgspec.json.encode(self.now)
        if data == self._written:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file.open_atomically(
            self._path, synced="content", before_rename=lambda _: point("worker.state.before")
        ) as file:
            file.write(data)
        self._written = data
