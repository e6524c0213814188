"""Which file had which content when it was last seen: a cache, so that untouched files stay unread.

It may be lost, cut or old: then files are read again, and nothing else is different.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pygit2

from houston_daemon.hosts.snapshots.scanning import FileMark
from houston_daemon.hosts.snapshots.trees import TreeFile

Known = dict[str, tuple[FileMark, TreeFile]]
"""By path: how a file looked, and what was in it."""


def load(file: Path, files: Mapping[str, TreeFile]) -> Known:
    """What the manifest knows of the files of the last snapshot."""
    try:
        rows = msgspec.msgpack.decode(
            file.read_bytes(), type=dict[bytes, tuple[FileMark, int, bytes]]
        )
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
    found: Known = {}
    for name, (mark, mode, oid) in rows.items():
        path, content = os.fsdecode(name), TreeFile(mode, pygit2.Oid(raw=oid))
        if files.get(path) == content:
            found[path] = (mark, content)
    return found


def save(file: Path, known: Known) -> None:
    """Replace the manifest in one move."""
    rows = {
        os.fsencode(path): (mark, content.mode, content.oid.raw)
        for path, (mark, content) in known.items()
    }
    beside = file.with_suffix(".new")
    beside.write_bytes(msgspec.msgpack.encode(rows))
    beside.replace(file)
