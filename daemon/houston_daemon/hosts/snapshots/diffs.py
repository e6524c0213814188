"""What changed between two snapshots, as unified diffs a model or a person can read."""

from collections.abc import Sequence
from typing import Literal

import pygit2

from houston_daemon.hosts.protocol import ChangedFile
from houston_daemon.hosts.snapshots.loose_objects import size_of
from houston_daemon.hosts.snapshots.tree_names import shown
from houston_daemon.hosts.snapshots.trees import LINK, Beside, TreeFile

LONGEST = 16 * 1024
"""Bytes of one diff."""
MOST_FILES = 200
_DIFF_BYTES = 1_000_000
"""A comparison holds the interpreter for as long as it takes: 0.1 s for this much."""

Side = TreeFile | Beside | None
Kind = Literal["added", "changed", "removed"]


def describe(
    repo: pygit2.Repository, changes: Sequence[tuple[str, Side, Side]]
) -> tuple[tuple[ChangedFile, ...], int]:
    """The first 200 changes with their diffs, and how many more there are."""
    files = tuple(_one(repo, shown(path), *sides) for path, *sides in changes[:MOST_FILES])
    return files, max(0, len(changes) - MOST_FILES)


def _one(repo: pygit2.Repository, path: str, old: Side, new: Side) -> ChangedFile:
    kind: Kind = "added" if old is None else "removed" if new is None else "changed"
    for side in (new, old):
        if isinstance(side, Beside):
            return ChangedFile(path, kind, 0, 0, "", side.why)
    assert not isinstance(old, Beside) and not isinstance(new, Beside)
    if old is not None and new is not None and old.oid == new.oid:
        return ChangedFile(path, kind, 0, 0, "", _mode_note(old, new))
    if max(size_of(repo, side.oid) for side in (old, new) if side is not None) > _DIFF_BYTES:
        return ChangedFile(path, kind, 0, 0, "", "too large to compare")
    before = repo[old.oid] if old is not None else None
    after = repo[new.oid] if new is not None else None
    patch = _patch(before, after, path)
    if patch.delta.is_binary:
        return ChangedFile(path, kind, 0, 0, "", "binary")
    _, added, removed = patch.line_stats
    link = any(side is not None and side.mode == LINK for side in (old, new))
    note = "symbolic link" if link else ""
    return ChangedFile(path, kind, added, removed, _cut(_without_head(patch.data)), note)


def _patch(before: pygit2.Blob | None, after: pygit2.Blob | None, path: str) -> pygit2.Patch:
    return pygit2.Patch.create_from(before, after, old_as_path=path, new_as_path=path)


def _without_head(data: bytes) -> bytes:
    """From `---` on: git's own two lines name object ids, which say nothing to a reader."""
    at = data.find(b"\n--- ")
    return data[at + 1 :] if at >= 0 else data


def _cut(data: bytes) -> str:
    if len(data) <= LONGEST:
        return data.decode("utf-8", "replace")
    kept = data[: data.rfind(b"\n", 0, LONGEST) + 1] or data[:LONGEST]
    left = len(data) - len(kept)
    return kept.decode("utf-8", "replace") + f"[diff cut here: {left} more bytes]\n"


def _mode_note(old: TreeFile, new: TreeFile) -> str:
    if new.mode == LINK or old.mode == LINK:
        return "now a symbolic link" if new.mode == LINK else "no longer a symbolic link"
    return "now executable" if new.mode > old.mode else "no longer executable"
