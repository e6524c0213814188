"""The far end's shelf of parcels, `<root>.parcels/<name>/`: who needs which, and what may go.

It lies beside the host's root, which is hidden in every sandbox. A rollout notes what it needs in
its own folder, as `<root>/rollouts/R/parcels/<name>`, before it is told that it is there: what no
note names is needed by nobody, and a rollout's notes go when it is freed.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from houston_daemon.hosts import emptying
from houston_daemon.hosts.ssh.parcels import FILE, ONE_FILE
from houston_shared.terminal_folder import rollout_folder

log = logging.getLogger(__name__)

_NEEDS = "parcels"
_LOCK = ".lock"
_COMING_SECONDS = 86_400.0
"""What came last a day ago comes no more: its connection was cut."""


class Shelf:
    """The parcels on this machine, for one rollout."""

    def __init__(self, root: Path, rollout: str) -> None:
        self.place = root.with_name(root.name + ".parcels")
        """Holds evaluators and their solutions, so no agent may see it."""
        self._root = root
        self._needs = rollout_folder(root, rollout) / _NEEDS

    def open(self) -> None:
        """Make the shelf: only what is there can be hidden from a session. Raises OSError."""
        self.place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._needs.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._needs.mkdir(exist_ok=True, mode=0o700)

    def of(self, name: str) -> Path:
        """Where a parcel lies, or would."""
        return self.place / name

    def content(self, name: str) -> Path:
        """What was brought: the folder itself, or the one file of a parcel of a file."""
        place = self.of(name)
        file = place / ONE_FILE
        return file if name.startswith(FILE) and file.exists() else place

    def has(self, name: str) -> bool:
        """Whether it is there, whole; from now on the rollout needs it. Raises OSError."""
        with self._turn():
            self._need(name)
            return self.of(name).is_dir()

    def add(self, name: str, token: str, data: bytes, last: bool) -> None:
        """Keep one more piece; with the last, unpack. Raises OSError."""
        packed = self.place / f"{name}.{token}.tar"
        with packed.open("ab") as file:
            file.write(data)
        if not last:
            return
        beside = self.place / f"{name}.{token}"
        try:
            with tarfile.open(packed) as tar:
                tar.extractall(beside, filter="tar")
            with self._turn():
                self._need(name)
                self._put(beside, name)
        finally:
            packed.unlink(missing_ok=True)
            shutil.rmtree(beside, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what no rollout needs any more; what would not go is tried the next time."""
        if not self.place.is_dir():
            return
        with self._turn():
            for name in self._needless():
                self.of(name).rename(self.place / f"gone.{secrets.token_hex(8)}")
        for gone in self.place.glob("gone.*"):
            try:
                if gone.is_dir():
                    emptying.remove(gone)
                else:
                    gone.unlink()
            except OSError as problem:
                log.warning("%s could not be removed: %s", gone, problem)

    def _needless(self) -> list[str]:
        """Parcels that nobody has noted, and pieces of some that come no more."""
        rollouts = list((self._root / "rollouts").glob("*/workspace"))
        if not all((one.parent / _NEEDS).is_dir() for one in rollouts):
            return []  # an older Houston noted nothing: what its rollouts need is not known
        needed = {note.name for note in (self._root / "rollouts").glob(f"*/{_NEEDS}/*")}
        names = [entry.name for entry in self.place.iterdir() if entry.name != _LOCK]
        return [name for name in names if name not in needed and not self._coming(name)]

    def _coming(self, name: str) -> bool:
        """Whether these are pieces of a parcel, or it is being unpacked, or removed already."""
        if name.startswith("gone."):
            return True
        try:
            since = time.time() - self.of(name).stat().st_mtime
        except FileNotFoundError:  # pieces that have just become a parcel
            return True
        return "." in name and since < _COMING_SECONDS

    def _need(self, name: str) -> None:
        (self._needs / name).touch(mode=0o600)

    def _put(self, beside: Path, name: str) -> None:
        try:
            beside.rename(self.of(name))
        except OSError:
            if not self.of(name).is_dir():  # else another rollout brought it meanwhile
                raise

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One at a time needs, puts or removes; nobody has the turn for long."""
        words = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.place / _LOCK, words, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
