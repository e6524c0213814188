"""Which content a corpus has: one key, whoever asks and wherever its copy lies.

Reading a large corpus only to learn that it is the same one takes seconds, so the key is kept for
as long as every file has the same size, time and inode.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from houston_daemon.environments.retrieval.documents import files
from houston_daemon.environments.retrieval.turns import Cancelled, turn

FORM = 2
"""Raised when terms or tables change: an index of another form is another index."""
_PIECE = 1 << 20
_LONG = 32
"""Characters of a key."""


def content_key(source: Path, folder: Path, cancelled: Callable[[], bool]) -> str:
    """The key of the corpus at `source`; what is known of it is kept in `folder`.

    Raises OSError, and Cancelled when `cancelled()` comes true.
    """
    signature = _signature(source)
    note = folder / f"{signature}.key"
    if known := _known(note):
        return known
    with turn(folder / f"{signature}.lock", cancelled):
        return _known(note) or _made(source, signature, note, cancelled)


def _known(note: Path) -> str:
    known = note.read_text(encoding="ascii") if note.is_file() else ""
    return known if len(known) == _LONG else ""  # a power cut can leave an empty one


def _made(source: Path, signature: str, note: Path, cancelled: Callable[[], bool]) -> str:
    key = _hashed(source, cancelled)
    if _signature(source) != signature:  # written to meanwhile: known again when it rests
        return key
    beside = note.with_suffix(".new-key")
    beside.write_text(key, encoding="ascii")
    beside.replace(note)
    return key


def _signature(source: Path) -> str:
    """Names, sizes, times and inodes of the files, which change when a file does."""
    digest = hashlib.blake2b(f"{FORM} {source}".encode("utf-8", "surrogateescape"), digest_size=16)
    for path in files(source):
        stat = path.stat()
        line = f"\0{path}\0{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _hashed(source: Path, cancelled: Callable[[], bool]) -> str:
    digest = hashlib.blake2b(f"{FORM}".encode(), digest_size=16)
    for path in files(source):
        name = "" if path == source else path.relative_to(source).as_posix()
        inner = hashlib.blake2b(digest_size=16)
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                inner.update(piece)
                if cancelled():
                    raise Cancelled
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0" + inner.digest())
    return digest.hexdigest()
