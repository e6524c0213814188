"""The home: the data folder of one daemon, and where its sockets are.

Only names and places; who may write where is the recorder's business. An ipc path ends at 107
bytes, so a long home puts its sockets under `$XDG_RUNTIME_DIR/houston-<hash>` (DESIGN §3).
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

IPC_PATH_LIMIT = 107
"""Bytes of the longest ipc path that the kernel binds (sun_path, less its end)."""


@dataclass(frozen=True, slots=True)
class Home:
    """One daemon's data folder."""

    path: Path
    """Absolute."""

    @property
    def key(self) -> str:
        """Short hash of the path: names what belongs to this home but lies elsewhere."""
        return hashlib.sha256(str(self.path).encode()).hexdigest()[:12]

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
    def lock_file(self) -> Path:
        """Held by flock while a daemon runs; its content is for people only."""
        return self.path / "daemon.lock"

    @property
    def configuration(self) -> Path:
        """`houston.toml` of this home."""
        return self.path / "houston.toml"

    @property
    def run(self) -> Path:
        """Folder of the sockets."""
        own = self.path / "run"
        longest = own / "control.sock"
        if len(os.fsencode(longest)) <= IPC_PATH_LIMIT:
            return own
        base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        return Path(base) / f"houston-{self.key}"

    def socket(self, name: str) -> str:
        """ZeroMQ endpoint of `ingest`, `control` or `live`."""
        return f"ipc://{self.run / name}.sock"
