"""Snapshots in a store: what each new one added to its shadow repository, as objects.

`snapshots/ROLLOUT/LEVEL-FIRST-LAST-HEAD-DIGEST` holds git objects as stored in the repository, and
the list of its copies of large files; these are separate objects, named by digest. Bundles are
numbered, and many small ones are merged. After a fetch they form a shadow repository again, with
every git object checked against its name. `artifact_copier` decides which rollouts are copied, and
when.
"""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pygit2

from houston_daemon.artifacts.artifact_store import (
    ArtifactStore,
    ObjectDamaged,
    open_folder_atomically,
)
from houston_daemon.artifacts.store_head import file_object
from houston_daemon.hosts.snapshots.git_objects import (
    check_objects,
    files_tree,
    read_notes,
    walk_tree,
)
from houston_daemon.hosts.snapshots.shadow_repository import HEAD_FILE, make_bare_repository
from houston_daemon.maintenance.durable_copy import hash_file
from houston_shared.errors import HoustonError, NotFound

BUNDLE_BYTES = 32 * 1024 * 1024
"""An object of a bundle is begun anew at this size."""
MERGED_BUNDLES = 64
"""So many small bundles of a rollout become one."""
_SMALL_BYTES = BUNDLE_BYTES // MERGED_BUNDLES
FETCHES_AT_ONCE = 8
_NO_HEAD = "0" * 40


class SnapshotBundle(NamedTuple):
    """One bundle, as its name says."""

    level: int
    first: int
    last: int
    head: str
    """The newest commit that is whole with it; zeros where more of the same snapshot follows."""
    digest: str

    @property
    def file(self) -> str:
        """Its name below the rollout's."""
        return f"{self.level}-{self.first:08d}-{self.last:08d}-{self.head}-{self.digest}"


class _BundleBody(msgspec.Struct, frozen=True):
    """What an object holds."""

    objects: dict[str, bytes]
    """Git objects by id, each as it lies in the repository."""
    large: dict[str, str]
    """Copies of large files: SHA-256 by name."""


def list_bundles(store: ArtifactStore, rollout: str) -> dict[SnapshotBundle, int]:
    """Bundles of a rollout, and their bytes. Raises StoreRefused."""
    sizes = {_parse_name(name): size for name, size in store.list(f"snapshots/{rollout}").items()}
    return {bundle: size for bundle, size in sizes.items() if bundle is not None}


def _parse_name(name: str) -> SnapshotBundle | None:
    parts = name.rpartition("/")[2].split("-")
    if len(parts) != 5 or not all(part.isdigit() for part in parts[:3]):
        return None
    level, first, last = map(int, parts[:3])
    return SnapshotBundle(level, first, last, parts[3], parts[4])


class RolloutSnapshots:
    """Copies the snapshots of one rollout of this machine into a store."""

    def __init__(self, store: ArtifactStore, rollout: str, shadow: Path) -> None:
        """shadow: its shadow repository."""
        self._store, self._rollout, self._shadow = store, rollout, shadow
        self._bundles: dict[SnapshotBundle, int] | None = None
        self._large: dict[str, str] = {}

    def copy(self) -> int:
        """Copy what the store lacks of the repository; return how many bytes that was.

        A snapshot that a power cut damaged is left out, and the next one copied whole. Raises
        StoreRefused, OSError; HoustonError where the newest snapshot is damaged.
        """
        head = read_head(self._shadow)
        if self._bundles is None:
            self._bundles = list_bundles(self._store, self._rollout)
        heads = {bundle.head for bundle in self._bundles} - {_NO_HEAD}
        if not head or head in heads:
            return 0
        check_objects(self._shadow)
        large = self._copy_large_files()
        number = max((bundle.last for bundle in self._bundles), default=0)
        copied = 0
        for body, is_last in _pack(self._shadow, _new_objects(self._shadow, head, heads), large):
            number += 1
            copied += self._write(body, 0, number, number, head if is_last else _NO_HEAD)
        self._merge(self._bundles)
        return copied

    def _copy_large_files(self) -> dict[str, str]:
        """Copy what of the large files is new; all of them."""
        for path in sorted((self._shadow / "large").glob("*-*-*")):
            if path.name not in self._large:
                digest = hash_file(path)
                self._store.keep_file(file_object(digest), path, digest)
                self._large[path.name] = digest
        return dict(self._large)

    def _write(self, body: _BundleBody, level: int, first: int, last: int, head: str) -> int:
        assert self._bundles is not None
        data = msgspec.msgpack.encode(body)
        bundle = SnapshotBundle(level, first, last, head, hashlib.sha256(data).hexdigest())
        self._store.write(f"snapshots/{self._rollout}/{bundle.file}", data)
        self._bundles[bundle] = len(data)
        return len(data)

    def _merge(self, bundles: dict[SnapshotBundle, int]) -> None:
        """Make one bundle of many small ones; those go once it is there."""
        small = sorted(
            bundle for bundle, size in bundles.items() if bundle.level == 0 and size < _SMALL_BYTES
        )
        if len(small) < MERGED_BUNDLES or small[-1].head == _NO_HEAD:
            return
        objects: dict[str, bytes] = {}
        large: dict[str, str] = {}
        for bundle in small:
            body = _read_bundle(self._store, self._rollout, bundle)
            objects |= body.objects
            large |= body.large
        merged = _BundleBody(objects, large)
        self._write(merged, 1, small[0].first, small[-1].last, small[-1].head)
        self._store.remove([f"snapshots/{self._rollout}/{bundle.file}" for bundle in small])
        for bundle in small:
            del bundles[bundle]


def fetch_shadow(store: ArtifactStore, rollout: str, shadow: Path, *commits: str) -> str:
    """Make a shadow repository as the store has it; the commit it stands at.

    shadow: is not there; it appears whole or not at all. commits: snapshots of it, of which the
    first that the store has is taken; the newest of the store without any. Raises HoustonError
    where the store has no snapshots of the rollout, or none of these, ObjectDamaged, ObjectMissing,
    StoreRefused.
    """
    bundles = sorted(list_bundles(store, rollout), key=lambda bundle: (bundle.last, bundle.level))
    heads = [bundle.head for bundle in bundles if bundle.head != _NO_HEAD]
    if not heads:
        raise no_snapshots_error(store, rollout)
    with open_folder_atomically(shadow) as temp_folder:
        make_bare_repository(temp_folder)
        large = _fetch_objects(store, rollout, bundles, temp_folder)
        _fetch_large_files(store, temp_folder, large)
        candidates = commits or heads[-1:]
        head = next((each for each in candidates if _has_whole_snapshot(temp_folder, each)), "")
        if not head:
            raise no_snapshots_error(store, rollout, candidates[0])
        target = temp_folder / HEAD_FILE
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{head}\n")
    return head


def no_snapshots_error(store: ArtifactStore, rollout: str, commit: str = "") -> HoustonError:
    """There are no snapshots of a rollout in the store, or not all of this one."""
    lacks = f"lacks the snapshot {commit[:12]}, or a part of it," if commit else "has no snapshots"
    cause = f"{store.url} {lacks} of {rollout}."
    return NotFound(cause, "No workspace was made.")


def read_head(shadow: Path) -> str:
    """The newest commit of a shadow repository; empty where there is none."""
    try:
        return (shadow / HEAD_FILE).read_text().strip()
    except OSError:
        return ""


def lacks_snapshot(shadow: Path, commit: str) -> bool:
    """Whether a shadow repository has snapshots, but not this one; a lost newest counts as here."""
    try:
        lost = ("", commit)
        return read_head(shadow) not in lost and commit not in pygit2.Repository(str(shadow))
    except (ValueError, pygit2.GitError):
        return False  # damaged: whoever reads it says so


def _fetch_objects(
    store: ArtifactStore, rollout: str, bundles: Sequence[SnapshotBundle], repository: Path
) -> dict[str, str]:
    """Write the git objects of all bundles; the large files that they name."""
    large: dict[str, str] = {}
    read = partial(_read_bundle, store, rollout)
    with ThreadPoolExecutor(FETCHES_AT_ONCE) as pool:
        for start in range(0, len(bundles), FETCHES_AT_ONCE):
            some = bundles[start : start + FETCHES_AT_ONCE]
            for bundle, body in zip(some, pool.map(read, some), strict=True):
                large |= body.large
                if not _write_objects(repository, body.objects):
                    raise ObjectDamaged(store.place(f"snapshots/{rollout}/{bundle.file}"))
    return large


def _write_objects(repository: Path, objects: dict[str, bytes]) -> bool:
    """Write git objects; False where one is not what its name says."""
    for oid, data in objects.items():
        if not _is_object(oid, data):
            return False
        target = _object_path(repository, oid)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_bytes(data)
            target.chmod(0o444)
    return True


def _fetch_large_files(store: ArtifactStore, repository: Path, large: dict[str, str]) -> None:
    for name, digest in large.items():
        if "/" in name or name.startswith("."):
            raise ObjectDamaged(store.place(file_object(digest)))
        store.read_file(file_object(digest), repository / "large" / name, digest)


def _read_bundle(store: ArtifactStore, rollout: str, bundle: SnapshotBundle) -> _BundleBody:
    name = f"snapshots/{rollout}/{bundle.file}"
    try:
        return msgspec.msgpack.decode(store.read(name, bundle.digest), type=_BundleBody)
    except msgspec.MsgspecError:
        raise ObjectDamaged(store.place(name)) from None


def _pack(
    shadow: Path, objects: Iterator[str], large: dict[str, str]
) -> Iterator[tuple[_BundleBody, bool]]:
    """Bodies of bundles of bounded size, and whether it is the last one."""
    body: dict[str, bytes] = {}
    size = 0
    for oid in objects:
        data = _read_object(shadow, oid)
        if body and size + len(data) > BUNDLE_BYTES:
            yield _BundleBody(body, {}), False
            body, size = {}, 0
        body[oid] = data
        size += len(data)
    yield _BundleBody(body, large), True


def _new_objects(shadow: Path, head: str, known: set[str]) -> Iterator[str]:
    """Ids of the objects of `head` and the commits before it, up to those of `known`."""
    try:
        repo = pygit2.Repository(str(shadow))
        commits: list[pygit2.Commit] = []
        commit = repo[head]
        while str(commit.id) not in known:
            commits.append(commit)
            if not commit.parent_ids or commit.parent_ids[0] not in repo:
                break
            commit = commit.parents[0]
        base = commit.tree if str(commit.id) in known else None
        seen_ids: set[str] = set()
        for commit in reversed(commits):
            added = _added_objects(repo, commit, base)
            if not added and str(commit.id) == head:
                raise _damaged_shadow(shadow, "a part of the newest is lost")
            yield from dict.fromkeys(oid for oid in added if oid not in seen_ids)
            seen_ids.update(added)
            base = commit.tree if added else None
    except (KeyError, ValueError, pygit2.GitError) as problem:
        raise _damaged_shadow(shadow, str(problem)) from problem


def _added_objects(
    repo: pygit2.Repository, commit: pygit2.Commit, base: pygit2.Tree | None
) -> list[str]:
    """Ids of a commit and what its tree has beside `base`; none where a part of it is lost."""
    try:
        ids = [str(commit.id), *_new_in_tree(repo, commit.tree, base)]
    except (KeyError, ValueError, pygit2.GitError):
        return []
    return ids if all(oid in repo for oid in ids) else []


def _new_in_tree(
    repo: pygit2.Repository, tree: pygit2.Tree, old: pygit2.Tree | None
) -> Iterator[str]:
    """Ids of a tree and all in it that the tree before has not at the same place."""
    if old is not None and tree.id == old.id:
        return
    yield str(tree.id)
    before = {} if old is None else {entry.name: entry for entry in old}
    for entry in tree:
        other = before.get(entry.name)
        if other is not None and other.id == entry.id:
            continue
        if isinstance(entry, pygit2.Tree):
            yield from _new_in_tree(repo, entry, other if isinstance(other, pygit2.Tree) else None)
        else:
            yield str(entry.id)


def _read_object(shadow: Path, oid: str) -> bytes:
    """An object as it lies in the repository; made so where it lies in a pack."""
    try:
        data = _object_path(shadow, oid).read_bytes()
    except FileNotFoundError:
        try:
            kind, body = pygit2.Repository(str(shadow)).read(oid)
        except (KeyError, ValueError, pygit2.GitError) as problem:
            raise _damaged_shadow(shadow, str(problem)) from problem
        names = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
        return zlib.compress(b"%s %d\0" % (names[int(kind)], len(body)) + body, 1)
    except OSError as problem:
        raise _damaged_shadow(shadow, problem.strerror or str(problem)) from problem
    if not _is_object(oid, data):
        raise _damaged_shadow(shadow, f"object {oid[:12]} is not what its name says")
    return data


def _is_object(oid: str, data: bytes) -> bool:
    try:
        content = zlib.decompress(data)
    except zlib.error:
        return False
    return hashlib.sha1(content, usedforsecurity=False).hexdigest() == oid


def _object_path(repository: Path, oid: str) -> Path:
    return repository / "objects" / oid[:2] / oid[2:]


def _has_whole_snapshot(repository: Path, commit: str) -> bool:
    """Whether a snapshot is there with all of its files."""
    try:
        repo = pygit2.Repository(str(repository))
        snapshot = repo[commit]
        read_notes(snapshot)
        return all(file.oid in repo for _, file in walk_tree(files_tree(snapshot)))
    except (KeyError, ValueError, pygit2.GitError):
        return False


def _damaged_shadow(shadow: Path, reason: str) -> HoustonError:
    return HoustonError(
        f"The snapshots in {shadow} cannot be read: {reason}.",
        "They are not copied to the store; earlier copies there are kept.",
        "The rollout's next snapshot after a restart of the machine is complete again.",
    )
