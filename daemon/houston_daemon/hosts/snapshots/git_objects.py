"""The git objects of a shadow repository: names in trees, blobs, trees and commits, entry by entry.

No index, no lock, no reference: objects are written, and the head is a file moved into place. A
commit's tree has two entries: `files/`, the workspace, and `about.json`, what git cannot hold.
Names that git or libgit2 refuses are percent-encoded. Blobs are compressed here, because libgit2
would hold the interpreter's lock meanwhile. Objects that a power cut truncated are removed before
anything is read.
"""

import errno
import fcntl
import hashlib
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec
import pygit2

from houston_shared import atomic_file

_ENCODED_PREFIX = "%houston%"
_REFUSED_NAMES = re.compile(r"(?:\.git|git~[0-9]+)[ .]*(?::.*)?", re.IGNORECASE | re.DOTALL)


def to_tree_name(name: str) -> str:
    """The entry name for one part of a path."""
    ascii_only = name if name.isascii() else name.encode("ascii", "ignore").decode()
    if (
        _REFUSED_NAMES.fullmatch(ascii_only)
        or name.startswith(_ENCODED_PREFIX)
        or not _is_utf8(name)
    ):
        return _ENCODED_PREFIX + quote_from_bytes(os.fsencode(name), safe="").replace(".", "%2E")
    return name


def from_tree_name(name: str) -> str:
    """The file name for a tree entry; the reverse of `to_tree_name`."""
    if name.startswith(_ENCODED_PREFIX):
        return os.fsdecode(unquote_to_bytes(name[len(_ENCODED_PREFIX) :]))
    return name


def path_to_tree(path: str) -> str:
    """`to_tree_name` for every part of a path."""
    return "/".join(to_tree_name(part) for part in path.split("/"))


def path_from_tree(path: str) -> str:
    """The reverse of `path_to_tree`."""
    return "/".join(from_tree_name(part) for part in path.split("/"))


def printable_path(path: str) -> str:
    """A path that can be printed and sent; bytes that are not UTF-8 show as \\xNN."""
    return path if _is_utf8(path) else os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_utf8(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name)


log = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CHECKED_BYTES = 1 << 16


def remove_broken_objects(folder: Path) -> None:
    """Remove broken objects and copies, and forget which files were seen: all are read again.

    folder: the shadow repository. Does nothing unless the machine has restarted. Every object is
    read to its end, because libgit2 1.9 never finishes reading a truncated one. Raises OSError.
    """
    path, boot = folder / "boot", _BOOT_ID.read_text()
    if path.exists() and path.read_text() == boot:
        return
    with path.open("a+") as note:
        fcntl.flock(note, fcntl.LOCK_EX)  # who comes second must not remove what is written anew
        note.seek(0)
        if note.read() == boot:
            return
        broken = [path for path in (folder / "objects").glob("??/*") if not _is_whole(path)]
        broken += [path for path in (folder / "large").glob("*-*-*") if not _has_named_size(path)]
        for path in broken:
            path.unlink()
        if broken:
            log.warning("%d objects of %s were cut off by a power cut", len(broken), folder)
        (folder / "manifest").unlink(missing_ok=True)
        note.truncate(0)
        note.write(boot)


def check_objects(folder: Path) -> None:
    """Remove objects that a power cut truncated, if no worker did so since the machine started.

    For callers that only read the repository. Raises OSError.
    """
    try:
        remove_broken_objects(folder)
    except FileNotFoundError:
        return  # no repository, as the caller says at once
    except OSError as problem:
        if problem.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        log.warning("%s is read without a check: it is not writable here", folder)


def _is_whole(path: Path) -> bool:
    """Whether a loose object can be inflated to its end, checksum and all."""
    inflating = zlib.decompressobj()
    try:
        with path.open("rb") as file:
            while data := file.read(_CHECKED_BYTES):
                inflating.decompress(data)
    except zlib.error:
        return False
    return inflating.eof


def _has_named_size(path: Path) -> bool:
    """A copy is named after inode, size and times of what was copied, by `LargeFileCopies`."""
    size = path.name.split("-")[1]
    return path.stat().st_size == int(size, 16)


_SMALL = 1 << 17


def write_blob(repo: pygit2.Repository, data: bytes) -> pygit2.Oid:
    """Store `data`; returns its id. The object appears whole or not at all."""
    if len(data) < _SMALL:
        return repo.create_blob(data)
    head = b"blob %d\0" % len(data)
    digest = hashlib.sha1(head, usedforsecurity=False)
    digest.update(data)
    name = digest.hexdigest()
    target = Path(repo.path) / "objects" / name[:2] / name[2:]
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        press = zlib.compressobj(1)
        temporary_file = target.parent / f"tmp_obj_{os.getpid()}"
        with atomic_file.open_atomically(
            target, temporary_path=temporary_file, mode=0o444, synced="nothing"
        ) as file:
            file.write(press.compress(head))
            for at in range(0, len(data), 1 << 20):
                file.write(press.compress(data[at : at + (1 << 20)]))
            file.write(press.flush())
    return pygit2.Oid(hex=name)


def blob_size(repo: pygit2.Repository, oid: pygit2.Oid) -> int:
    """Bytes of a blob's content, from the first few bytes of its object."""
    name = str(oid)
    try:
        with (Path(repo.path) / "objects" / name[:2] / name[2:]).open("rb") as file:
            head = zlib.decompressobj().decompress(file.read(256), 32)
    except FileNotFoundError:  # in a pack
        return int(repo[oid].size)
    return int(head.partition(b"\0")[0].split(b" ")[1])


FILES_ENTRY, ABOUT_ENTRY = "files", "about.json"
FILE_MODE, PROGRAM_MODE, LINK_MODE, FOLDER_MODE = 0o100644, 0o100755, 0o120000, 0o040000


class TreeFile(NamedTuple):
    """One file of a tree."""

    mode: int
    oid: pygit2.Oid


class UnstoredFile(msgspec.Struct, frozen=True):
    """A file that is recorded by size and time, not by content (large, or being written)."""

    size: int
    mtime_ns: int
    mode: int
    why: str
    stored: str = ""
    """Name of its copy among the large files; empty when none was made."""
    ctime_ns: int = 0
    """When content or mode last changed, which no program can set back; 0: not known."""


class SnapshotNotes(msgspec.Struct):
    """What a snapshot knows beside its tree; on disk paths are written as in the tree."""

    beside: dict[str, UnstoredFile] = {}
    empty: list[str] = []
    skipped: dict[str, str] = {}


TreeChanges = dict[str, "TreeChanges | TreeFile | None"]
"""Nested by folder: a file to set, None to remove."""


def nest_changes(changes: Iterable[tuple[str, TreeFile | None]]) -> TreeChanges:
    """Changes by path as a tree of folders with git's names; removals never undo an addition."""
    top: TreeChanges = {}
    for path, file in sorted(changes, key=lambda change: change[1] is not None):
        *folders, name = (to_tree_name(part) for part in path.split("/"))
        at = top
        for folder in folders:
            below = at.get(folder)
            if not isinstance(below, dict):
                below = at[folder] = {}
            at = below
        at[name] = file
    return top


def write_updated_tree(
    repo: pygit2.Repository, old: pygit2.Tree | None, changes: TreeChanges
) -> pygit2.Oid | None:
    """Write `old` with `changes`; None when nothing is left in it."""
    builder = repo.TreeBuilder(old) if old is not None else repo.TreeBuilder()
    for name, change in changes.items():
        oid, mode = None, FOLDER_MODE
        if isinstance(change, dict):
            below = old[name] if old is not None and name in old else None
            oid = write_updated_tree(
                repo, below if isinstance(below, pygit2.Tree) else None, change
            )
        elif change is not None:
            mode, oid = change
        if oid is not None:
            builder.insert(name, oid, mode)
        elif builder.get(name) is not None:
            builder.remove(name)
    return builder.write() if len(builder) else None


def walk_tree(tree: pygit2.Tree | None) -> Iterator[tuple[str, TreeFile]]:
    """Every file of a tree with its path in the workspace."""
    waiting = [("", tree)] if tree is not None else []
    while waiting:
        prefix, folder = waiting.pop()
        for entry in folder:
            path = prefix + from_tree_name(entry.name)
            if entry.filemode == FOLDER_MODE:
                waiting.append((f"{path}/", entry))
            else:
                yield path, TreeFile(entry.filemode, entry.id)


def files_tree(commit: pygit2.Commit) -> pygit2.Tree | None:
    """The workspace's tree, None when it had no files."""
    tree = commit.tree
    return tree[FILES_ENTRY] if FILES_ENTRY in tree else None  # noqa: SIM401


def read_notes(commit: pygit2.Commit) -> SnapshotNotes:
    """What the commit says beside its tree."""
    return _rename_paths(
        msgspec.json.decode(commit.tree[ABOUT_ENTRY].data, type=SnapshotNotes), path_from_tree
    )


def _rename_paths(notes: SnapshotNotes, name: Callable[[str], str]) -> SnapshotNotes:
    return SnapshotNotes(
        {name(path): recorded for path, recorded in notes.beside.items()},
        [name(path) for path in notes.empty],
        {name(path): why for path, why in notes.skipped.items()},
    )


def write_commit(
    repo: pygit2.Repository,
    files: pygit2.Oid | None,
    notes: SnapshotNotes,
    message: str,
    parent: str,
) -> str:
    """Write a commit object; returns its id. No reference moves."""
    data = msgspec.json.encode(_rename_paths(notes, path_to_tree))
    builder = repo.TreeBuilder()
    if files is not None:
        builder.insert(FILES_ENTRY, files, FOLDER_MODE)
    builder.insert(ABOUT_ENTRY, repo.create_blob(data), FILE_MODE)
    signature = pygit2.Signature("houston", "houston@localhost")
    parents = [pygit2.Oid(hex=parent)] if parent else []
    return str(repo.create_commit(None, signature, signature, message, builder.write(), parents))
