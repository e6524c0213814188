"""Pages kept under the host's root, shared by its rollouts, each with its age.

One file for each address, named by its hash, replaced atomically. Pages are shared only by tasks
that may fetch the same. A file that cannot be read counts as none.
"""

import contextlib
import hashlib
import os
import secrets
import time
from pathlib import Path

import msgspec
import zstandard

from houston_daemon.environments.workstation.browse.page import Page

_MB = 1 << 20
_PAGE = msgspec.msgpack.Decoder(Page)


class PageCache:
    """The kept pages of one host. Its methods block; they run in a thread."""

    def __init__(self, folder: Path, *, seconds: float, megabytes: int, scope: str) -> None:
        """scope: what the task may fetch; pages are shared by tasks that may fetch the same."""
        self._folder = folder
        self._seconds = seconds
        self._most = megabytes * _MB
        self._scope = scope

    def find(self, address: str) -> Page | None:
        """The kept page of an address, if there is one that is young enough."""
        if not self._seconds:
            return None
        page = read(self._file(address))
        young = page is not None and 0 <= time.time() - page.at <= self._seconds
        return page if young else None

    def keep(self, address: str, page: Page) -> None:
        """Keep a page, and drop the oldest beyond the limit. A full disk keeps none."""
        if not self._seconds:
            return
        with contextlib.suppress(OSError):  # a cache may fail: the page is there all the same
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write(self._file(address), page)
            self._prune()

    def _file(self, address: str) -> Path:
        name = hashlib.sha256(f"{self._scope} {address}".encode()).hexdigest()
        return self._folder / f"{name}.page"

    def _prune(self) -> None:
        found = sorted(
            ((status.st_mtime, status.st_size, entry.path) for entry, status in self._entries()),
            reverse=True,
        )
        size = 0
        for modified, length, path in found:
            size += length
            if size > self._most or time.time() - modified > self._seconds:
                Path(path).unlink(missing_ok=True)

    def _entries(self) -> list[tuple[os.DirEntry[str], os.stat_result]]:
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another rollout dropped it
                    found.append((entry, entry.stat()))
        return found


def write(file: Path, page: Page) -> None:
    """Write a page: beside, then in its place."""
    data = zstandard.compress(msgspec.msgpack.encode(page), 3)
    beside = file.with_name(f".{secrets.token_hex(8)}")
    try:
        with beside.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def read(file: Path) -> Page | None:
    """The page in a file; None when it is not there or not sound."""
    try:
        return _PAGE.decode(zstandard.decompress(file.read_bytes()))
    except (OSError, zstandard.ZstdError, msgspec.DecodeError, UnicodeError, MemoryError):
        return None  # damaged bytes may also name a size that no machine has
