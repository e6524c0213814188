"""Folders that are sent to another machine once: named by metadata, sent in pieces, cached there.

A bundle is a tar file named after paths, sizes, modes, inodes and times, including the change time,
which no program can set. So a task's folder is sent once for all rollouts of that task, and used
for no other. The far end keeps bundles in `<root>.parcels/` next to the host's root, which every
sandbox hides; each rollout notes which ones it needs, and those in no note may be removed.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import IO, Any

from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.ssh import ssh_protocol as m
from houston_shared.errors import HoustonError
from houston_shared.terminal_log_files import rollout_folder

PIECE_BYTES = 1 << 20
"""Bytes of a tar file that travel in one message."""


SINGLE_FILE_NAME = "content"
"""Name, in its parcel, of a file that was brought alone."""
SINGLE_FILE_PREFIX = "file-"
"""How the name of a parcel of a single file begins."""


def bundle_name(folder: Path) -> str:
    """The bundle name of `folder`, or of a single file, as it is now. Raises OSError."""
    digest = hashlib.sha256()
    if not folder.is_dir():
        digest.update(os.fsencode(repr((str(folder), *_file_signature(folder.stat())))))
        return SINGLE_FILE_PREFIX + digest.hexdigest()[:32]
    for path in _walk_folder(folder):
        digest.update(
            os.fsencode(repr((str(path.relative_to(folder)), *_file_signature(path.lstat()))))
        )
    return digest.hexdigest()[:32]


def _file_signature(status: os.stat_result) -> tuple[int, ...]:
    """What two files never have in common: size and time alone are alike in a prepared data set."""
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_mode, status.st_size, status.st_ino, *times)


def pack_bundle(folder: Path, file: IO[bytes]) -> None:
    """Write everything in `folder` that can be copied into a tar file."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        if not folder.is_dir():
            tar.add(folder.resolve(), arcname=SINGLE_FILE_NAME)
            return
        for path in _walk_folder(folder):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False)


def _walk_folder(folder: Path) -> Iterator[Path]:
    """Files, folders and links below `folder`, folders before what they hold, in one order."""
    for entry in sorted(folder.iterdir()):
        mode = entry.lstat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield entry
        elif stat.S_ISDIR(mode):
            yield entry
            yield from _walk_folder(entry)


SendHostRequest = Callable[[m.AnyHostRequest, Any], Awaitable[Any]]
"""Asks the far end, and returns the answer as what the second argument says."""


async def send_bundle(folder: Path, host: str, ask: SendHostRequest) -> str:
    """Make sure a folder, or a single file, is on the machine `host`; the name of its bundle.

    Raises HoustonError where it cannot be read, and what `ask` raises.
    """
    try:
        name = await asyncio.to_thread(bundle_name, folder)
        if not await ask(m.HasBundle(name=name), bool):
            await _send_pieces(folder, name, ask)
    except OSError as problem:
        raise unreadable_folder(problem, host) from problem
    return name


def unreadable_folder(problem: OSError, host: str) -> HoustonError:
    """What is said of a folder that cannot be read here."""
    problem_text = f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
    return HoustonError(
        f"The files that the rollout needs cannot be copied to the host {host} ({problem_text}).",
        "The rollout cannot work there without them.",
    )


async def _send_pieces(folder: Path, name: str, ask: SendHostRequest) -> None:
    token = secrets.token_hex(8)
    with tempfile.TemporaryFile() as packed:
        await asyncio.to_thread(pack_bundle, folder, packed)
        size = packed.tell()
        packed.seek(0, os.SEEK_SET)
        at = 0
        while at < size:
            data = await asyncio.to_thread(packed.read, PIECE_BYTES)
            at += len(data)
            await ask(m.Piece(name=name, token=token, data=data, last=at >= size), None)


log = logging.getLogger(__name__)

_NEEDS_FOLDER = "parcels"
_LOCK_FILE = ".lock"
_ABANDONED_SECONDS = 86_400.0
"""What came last a day ago comes no more: its connection was cut."""


class BundleCache:
    """The bundles on this machine, for one rollout."""

    def __init__(self, root: Path, rollout: str) -> None:
        self.place = root.with_name(root.name + ".parcels")
        """Holds evaluators and their solutions, so no agent may see it."""
        self._root = root
        self._needs = rollout_folder(root, rollout) / _NEEDS_FOLDER

    def open(self) -> None:
        """Make the folder of bundles, since only an existing one can be hidden. Raises OSError."""
        self.place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._needs.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._needs.mkdir(exist_ok=True, mode=0o700)

    def path_of(self, name: str) -> Path:
        """A bundle's path, existing or not."""
        return self.place / name

    def content(self, name: str) -> Path:
        """What was sent: the folder itself, or the one file of a bundle of a file."""
        place = self.path_of(name)
        file = place / SINGLE_FILE_NAME
        return file if name.startswith(SINGLE_FILE_PREFIX) and file.exists() else place

    def has(self, name: str) -> bool:
        """Whether it is there, whole; from now on the rollout needs it. Raises OSError."""
        with self._exclusive_lock():
            self._note_need(name)
            return self.path_of(name).is_dir()

    def add(self, name: str, token: str, data: bytes, last: bool) -> None:
        """Store one more piece; after the last, unpack. Raises OSError."""
        packed = self.place / f"{name}.{token}.tar"
        with packed.open("ab") as file:
            file.write(data)
        if not last:
            return
        staging_folder = self.place / f"{name}.{token}"
        try:
            with tarfile.open(packed) as tar:
                tar.extractall(staging_folder, filter="tar")
            with self._exclusive_lock():
                self._note_need(name)
                self._put(staging_folder, name)
        finally:
            packed.unlink(missing_ok=True)
            shutil.rmtree(staging_folder, ignore_errors=True)

    def remove_unneeded(self) -> None:
        """Remove bundles that no rollout needs; a failed removal is retried the next time."""
        if not self.place.is_dir():
            return
        with self._exclusive_lock():
            for name in self._unneeded_names():
                self.path_of(name).rename(self.place / f"gone.{secrets.token_hex(8)}")
        for path in self.place.glob("gone.*"):
            try:
                if path.is_dir():
                    untrusted_files.remove_folder(path)
                else:
                    path.unlink()
            except OSError as problem:
                log.warning("%s could not be removed: %s", path, problem)

    def _unneeded_names(self) -> list[str]:
        """Parcels that nobody has noted, and pieces of some that come no more."""
        rollouts = list((self._root / "rollouts").glob("*/workspace"))
        if not all((workspace.parent / _NEEDS_FOLDER).is_dir() for workspace in rollouts):
            return []  # an older Houston noted nothing: what its rollouts need is not known
        needed = {note.name for note in (self._root / "rollouts").glob(f"*/{_NEEDS_FOLDER}/*")}
        names = [entry.name for entry in self.place.iterdir() if entry.name != _LOCK_FILE]
        return [name for name in names if name not in needed and not self._is_arriving(name)]

    def _is_arriving(self, name: str) -> bool:
        """Whether these are pieces of a parcel, or it is being unpacked, or removed already."""
        if name.startswith("gone."):
            return True
        try:
            since = time.time() - self.path_of(name).stat().st_mtime
        except FileNotFoundError:  # pieces that have just become a parcel
            return True
        return "." in name and since < _ABANDONED_SECONDS

    def _note_need(self, name: str) -> None:
        (self._needs / name).touch(mode=0o600)

    def _put(self, beside: Path, name: str) -> None:
        try:
            beside.rename(self.path_of(name))
        except OSError:
            if not self.path_of(name).is_dir():  # else another rollout brought it meanwhile
                raise

    @contextlib.contextmanager
    def _exclusive_lock(self) -> Iterator[None]:
        """One at a time needs, puts or removes; nobody has the turn for long."""
        words = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.place / _LOCK_FILE, words, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
