"""The home: the data folder of one daemon, and where its sockets are.

Only names and places; who may write where is the recorder's business. An ipc path ends at 107
bytes, so a long home has its sockets under `$XDG_RUNTIME_DIR/houston-<hash>`
(docs/design.md#processes-and-sockets). Which folder that is, the daemon writes into the home: cron,
systemd and SSH give its clients another environment than it has.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from houston_shared.errors import HoustonError

IPC_PATH_LIMIT = 107
"""Bytes of the longest ipc path that the kernel binds (sun_path, less its end)."""

TEMPORARY = "/tmp"


class Home(msgspec.Struct, frozen=True):
    """One daemon's data folder."""

    path: Path
    """Absolute."""

    @property
    def key(self) -> str:
        """Short hash of the path: names what belongs to this home but lies elsewhere."""
        import hashlib  # 4 ms that no command pays which only reads

        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]

    @property
    def database(self) -> Path:
        """The journal and its tables."""
        return self.path / "houston.db"

    @property
    def search_database(self) -> Path:
        """The full-text index, rebuildable."""
        return self.path / "search.db"

    @property
    def head_file(self) -> Path:
        """The chain's newest head, written beside the database."""
        return self.path / "chain.head"

    @property
    def blobs(self) -> Path:
        """Bodies over 64 KB, by SHA-256."""
        return self.path / "blobs"

    @property
    def logs(self) -> Path:
        """Logs of daemon, workers and engines."""
        return self.path / "logs"

    @property
    def backups(self) -> Path:
        """Backups, each a home in a folder named by its time."""
        return self.path / "backups"

    @property
    def damaged(self) -> Path:
        """Copies that repairs made of damaged files, each in a folder named by its time."""
        return self.path / "damaged"

    @property
    def archives(self) -> Path:
        """Archived rollouts."""
        return self.path / "archives"

    @property
    def sent_notifications(self) -> Path:
        """Which messages went to people who are away; written by the notifier alone."""
        return self.path / "notifications.json"

    @property
    def lock_file(self) -> Path:
        """Held by flock while a daemon runs; its content is for people only."""
        return self.path / "daemon.lock"

    @property
    def host_keys(self) -> Path:
        """Keys of workers' hosts, and the home's own; for the owner alone, in no backup."""
        return self.path / "host-keys.json"

    @property
    def configuration(self) -> Path:
        """`houston.toml` of this home."""
        return self.path / "houston.toml"

    @property
    def run_note(self) -> Path:
        """Names the folder of a long home's sockets; written by its daemon before they open."""
        return self.path / "run.path"

    @property
    def run(self) -> Path:
        """Folder of the sockets."""
        own = self.path / "run"
        if _socket_fits(own):
            return own
        return self.noted_run or next(self.run_places(), Path(TEMPORARY) / self._run_name)

    @property
    def noted_run(self) -> Path | None:
        """What the daemon wrote down; None where it did not, or for another home (a copy)."""
        try:
            noted_folder = Path(self.run_note.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            return None
        good = (
            noted_folder.is_absolute()
            and noted_folder.name == self._run_name
            and _socket_fits(noted_folder)
        )
        return noted_folder if good else None

    def run_places(self) -> Iterator[Path]:
        """Where the sockets of a long home may lie, best first; their roots are folders."""
        named = (os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("TMPDIR", ""))
        for root in (*named, TEMPORARY):
            place = Path(root) / self._run_name
            if root and place.is_absolute() and _socket_fits(place) and os.access(root, os.X_OK):
                yield place

    @property
    def _run_name(self) -> str:
        return f"houston-{self.key}"

    def socket(self, name: str) -> str:
        """ZeroMQ endpoint of `ingest`, `control` or `live`."""
        return f"ipc://{self.run / name}.sock"


def _socket_fits(folder: Path) -> bool:
    """Whether the longest socket of this folder is within the kernel's limit."""
    return len(os.fsencode(folder / "control.sock")) <= IPC_PATH_LIMIT


def unreadable_home(home: Path, problem: OSError) -> HoustonError:
    """The sentence for a home into which this user may not look."""
    closed = isinstance(problem, PermissionError)
    return HoustonError(
        f"The home {home} cannot be read by this user: {problem.strerror}.",
        "Nothing was done.",
        "Ask its owner to set `daemon.group` to a group of yours." if closed else "",
    )
