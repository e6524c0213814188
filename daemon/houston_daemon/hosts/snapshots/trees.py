"""Reads and writes the git trees of a shadow repository, entry by entry.

No index, no lock, no reference: objects are written, and the head is a file moved into place.
A commit's tree has two entries: `files/`, the workspace, and `about.json`, what git cannot hold.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
import pygit2

from houston_daemon.hosts.snapshots import tree_names

FILES, ABOUT = "files", "about.json"
FILE, PROGRAM, LINK, FOLDER = 0o100644, 0o100755, 0o120000, 0o040000


class TreeFile(NamedTuple):
    """One file of a tree."""

    mode: int
    oid: pygit2.Oid


class Beside(msgspec.Struct, frozen=True):
    """A file that is recorded by size and time, not by content (large, or being written)."""

    size: int
    mtime_ns: int
    mode: int
    why: str
    stored: str = ""
    """Name of its copy among the large files; empty when none was made."""
    ctime_ns: int = 0
    """When content or mode last changed, which no program can set back; 0: not known."""


class About(msgspec.Struct):
    """What a snapshot knows beside its tree; on disk paths are written as in the tree."""

    beside: dict[str, Beside] = {}
    empty: list[str] = []
    skipped: dict[str, str] = {}


Changes = dict[str, "Changes | TreeFile | None"]
"""Nested by folder: a file to set, None to remove."""


def nested(changes: Iterable[tuple[str, TreeFile | None]]) -> Changes:
    """Changes by path as a tree of folders with git's names; removals never undo an addition."""
    top: Changes = {}
    for path, file in sorted(changes, key=lambda change: change[1] is not None):
        *folders, name = (tree_names.to_tree(part) for part in path.split("/"))
        at = top
        for folder in folders:
            below = at.get(folder)
            if not isinstance(below, dict):
                below = at[folder] = {}
            at = below
        at[name] = file
    return top


def updated(
    repo: pygit2.Repository, old: pygit2.Tree | None, changes: Changes
) -> pygit2.Oid | None:
    """Write `old` with `changes`; None when nothing is left in it."""
    builder = repo.TreeBuilder(old) if old is not None else repo.TreeBuilder()
    for name, change in changes.items():
        oid, mode = None, FOLDER
        if isinstance(change, dict):
            below = old[name] if old is not None and name in old else None
            oid = updated(repo, below if isinstance(below, pygit2.Tree) else None, change)
        elif change is not None:
            mode, oid = change
        if oid is not None:
            builder.insert(name, oid, mode)
        elif builder.get(name) is not None:
            builder.remove(name)
    return builder.write() if len(builder) else None


def walk(tree: pygit2.Tree | None) -> Iterator[tuple[str, TreeFile]]:
    """Every file of a tree with its path in the workspace."""
    waiting = [("", tree)] if tree is not None else []
    while waiting:
        prefix, folder = waiting.pop()
        for entry in folder:
            path = prefix + tree_names.from_tree(entry.name)
            if entry.filemode == FOLDER:
                waiting.append((f"{path}/", entry))
            else:
                yield path, TreeFile(entry.filemode, entry.id)


def files_of(commit: pygit2.Commit) -> pygit2.Tree | None:
    """The workspace's tree, None when it had no files."""
    tree = commit.tree
    return tree[FILES] if FILES in tree else None  # noqa: SIM401


def about_of(commit: pygit2.Commit) -> About:
    """What the commit says beside its tree."""
    return _renamed(
        msgspec.json.decode(commit.tree[ABOUT].data, type=About), tree_names.path_from_tree
    )


def _renamed(about: About, name: Callable[[str], str]) -> About:
    return About(
        {name(path): recorded for path, recorded in about.beside.items()},
        [name(path) for path in about.empty],
        {name(path): why for path, why in about.skipped.items()},
    )


def write_commit(
    repo: pygit2.Repository, files: pygit2.Oid | None, about: About, message: str, parent: str
) -> str:
    """Write a commit object; returns its id. No reference moves."""
    data = msgspec.json.encode(_renamed(about, tree_names.path_to_tree))
    builder = repo.TreeBuilder()
    if files is not None:
        builder.insert(FILES, files, FOLDER)
    builder.insert(ABOUT, repo.create_blob(data), FILE)
    who = pygit2.Signature("houston", "houston@localhost")
    parents = [pygit2.Oid(hex=parent)] if parent else []
    return str(repo.create_commit(None, who, who, message, builder.write(), parents))
