"""Snapshots in a store: every one of them, large files too, is a workspace again elsewhere."""

import asyncio
import hashlib
import os
import subprocess
from pathlib import Path

import pygit2
import pytest

from houston_daemon.artifacts import snapshot_bundles
from houston_daemon.artifacts.artifact_store import ArtifactStore, ObjectDamaged, ObjectMissing
from houston_daemon.artifacts.missing_files import (
    WorkspaceNotFetched,
    fetch_missing_shadow,
    fetch_missing_workspace,
)
from houston_daemon.artifacts.snapshot_bundles import (
    RolloutSnapshots,
    fetch_shadow,
    list_bundles,
    read_head,
)
from houston_daemon.hosts.snapshots.shadow_repository import LARGE_FILE_BYTES, ShadowRepository
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from houston_shared.errors import ExitCode, HoustonError
from tests.support import small_disk

ROLLOUT = "probe-k3f9"


class Work:
    """A workspace that changes, with its snapshots, on one machine."""

    def __init__(self, root: Path, store: ArtifactStore) -> None:
        self.folder = root / "rollouts" / ROLLOUT
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.repository = ShadowRepository(self.workspace, self.folder / "shadow")
        self.copying = RolloutSnapshots(store, ROLLOUT, self.folder / "shadow")

    async def take(self, mark: bool = False, **files: str) -> str:
        """Write files and take a snapshot; its commit."""
        for name, text in files.items():
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            os.utime(path, ns=(1, 1))  # long settled
        return (await self.repository.take("step", mark=mark)).commit


@pytest.fixture
def work(any_store: ArtifactStore, tmp_path: Path) -> Work:
    return Work(tmp_path / "here", any_store)


def read_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


async def test_every_snapshot_is_there_elsewhere(
    work: Work, any_store: ArtifactStore, tmp_path: Path
) -> None:
    states = {}
    for step in range(6):
        commit = await work.take(
            **{"log.txt": f"step {step}\n" * step, f"d{step % 2}/f": str(step)}
        )
        states[commit] = read_files(work.workspace)
        if step % 2:
            assert work.copying.copy() > 0  # two snapshots at once
    assert work.copying.copy() == 0
    shadow = tmp_path / "there" / "shadow"
    shadow.parent.mkdir()
    assert fetch_shadow(any_store, ROLLOUT, shadow) == commit
    for number, (commit, files) in enumerate(states.items()):
        into = tmp_path / f"into{number}"
        assert restore_snapshot(shadow, commit, into) == []
        assert read_files(into) == files


async def test_the_next_snapshot_follows_a_fetched_one(
    work: Work, any_store: ArtifactStore, tmp_path: Path
) -> None:
    """The rollout goes on from the step that the journal ends with, not from the newest."""
    first = await work.take(a="1")
    work.copying.copy()
    await work.take(a="2")
    work.copying.copy()
    there = tmp_path / "there"
    assert fetch_missing_workspace(any_store.url, there, ROLLOUT, (first, 1))
    folder = there / "rollouts" / ROLLOUT
    assert (folder / "workspace" / "a").read_text() == "1"
    assert not fetch_missing_workspace(any_store.url, there, ROLLOUT, (first, 1)), "it is here"
    elsewhere = Work.__new__(Work)
    elsewhere.workspace, elsewhere.folder = folder / "workspace", folder
    elsewhere.repository = ShadowRepository(elsewhere.workspace, folder / "shadow")
    third = await elsewhere.take(a="3", b="new")
    assert RolloutSnapshots(any_store, ROLLOUT, folder / "shadow").copy() > 0
    shadow = tmp_path / "last"
    assert fetch_shadow(any_store, ROLLOUT, shadow, third) == third
    assert restore_snapshot(shadow, third, tmp_path / "into") == []
    assert (tmp_path / "into" / "a").read_text() == "3"


async def test_large_files_come_along(work: Work, any_store: ArtifactStore, tmp_path: Path) -> None:
    (work.workspace / "model.bin").write_bytes(os.urandom(LARGE_FILE_BYTES + 5))
    commit = await work.take(mark=True, a="1")
    work.copying.copy()
    shadow = tmp_path / "shadow"
    fetch_shadow(any_store, ROLLOUT, shadow)
    assert restore_snapshot(shadow, commit, tmp_path / "into") == []
    assert read_files(tmp_path / "into") == read_files(work.workspace)


async def test_bundles_are_cut_and_merged(
    work: Work, any_store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_bundles, "BUNDLE_BYTES", 3_000)
    commit = await work.take(**{f"f{number}": os.urandom(500).hex() for number in range(20)})
    work.copying.copy()
    assert len(list_bundles(any_store, ROLLOUT)) > 3, "one snapshot in several objects"
    monkeypatch.setattr(snapshot_bundles, "MERGED_BUNDLES", 4)
    for number in range(9):
        last = await work.take(a=str(number))
        work.copying.copy()
    bundles = list_bundles(any_store, ROLLOUT)
    assert any(bundle.level for bundle in bundles)
    shadow = tmp_path / "shadow"
    assert fetch_shadow(any_store, ROLLOUT, shadow) == last
    for number, wanted in enumerate((commit, last)):
        assert restore_snapshot(shadow, wanted, tmp_path / f"into{number}") == []
    assert (tmp_path / "into1" / "a").read_text() == "8"


async def test_objects_of_a_pack_are_copied(
    work: Work, any_store: ArtifactStore, tmp_path: Path
) -> None:
    commit = await work.take(a="1" * 1000, b="2")
    shadow = work.folder / "shadow"
    await asyncio.to_thread(subprocess.check_call, ["git", "repack", "-adq"], cwd=shadow)
    assert work.copying.copy() > 0
    fetch_shadow(any_store, ROLLOUT, tmp_path / "shadow")
    assert restore_snapshot(tmp_path / "shadow", commit, tmp_path / "into") == []
    assert (tmp_path / "into" / "b").read_text() == "2"


@pytest.mark.parametrize("lost", ["corrupted", "missing"])
@pytest.mark.parametrize("folder", ["snapshots", "objects"])
async def test_what_is_damaged_is_said_and_no_workspace_is_made(
    work: Work, any_store: ArtifactStore, tmp_path: Path, folder: str, lost: str
) -> None:
    (work.workspace / "model.bin").write_bytes(bytes(LARGE_FILE_BYTES + 5))
    commit = await work.take(mark=True, a="1")
    work.copying.copy()
    name = min(any_store.list(folder))
    if lost == "missing":
        any_store.remove([name])
    else:
        any_store.write(name, any_store.read(name)[:-1] + b"?")
    there = tmp_path / "there"
    with pytest.raises(WorkspaceNotFetched) as said:
        fetch_missing_workspace(any_store.url, there, ROLLOUT, (commit, 1))
    assert f"houston rollout resume {ROLLOUT}" in said.value.next
    assert list((there / "rollouts" / ROLLOUT).iterdir()) == []
    if (folder, lost) != ("snapshots", "missing"):  # then nobody knows that there was one
        kind = ObjectMissing if lost == "missing" else ObjectDamaged
        with pytest.raises(kind):
            fetch_missing_shadow(any_store.url, there, ROLLOUT, commit)


async def test_damage_here_is_not_copied(work: Work, any_store: ArtifactStore) -> None:
    commit = await work.take(a="1" * 1000)
    path = work.folder / "shadow" / "objects" / commit[:2] / commit[2:]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-4] + b"oops")
    with pytest.raises(HoustonError, match="cannot be read"):
        work.copying.copy()
    assert not any_store.list("snapshots")


@pytest.mark.parametrize("kept_bytes", [0, 4096], ids=["to nothing", "in its middle"])
@pytest.mark.parametrize("part", ["a file's content", "a folder", "the snapshot"])
async def test_what_a_power_cut_took_stops_no_later_copy(
    work: Work, any_store: ArtifactStore, tmp_path: Path, part: str, kept_bytes: int
) -> None:
    names = [f"d/{os.urandom(20).hex()}" for _ in range(200)]
    lost = await work.take(log=os.urandom(9_000).hex(), **dict.fromkeys(names, "1"))
    before = await work.take(**dict.fromkeys(names, "2"), log="2")
    await work.repository.close()
    shadow = work.folder / "shadow"
    repo = pygit2.Repository(str(shadow))
    files = repo[lost].tree["files"]
    oid = {"a file's content": files["log"].id, "a folder": files["d"].id}.get(part, lost)
    broken = shadow / "objects" / str(oid)[:2] / str(oid)[2:]
    broken.chmod(0o600)
    os.truncate(broken, min(kept_bytes, broken.stat().st_size - 9))
    (shadow / "boot").write_text("of an earlier start of the machine")
    # Nobody has opened it since: the daemon copies before the rollout goes on.
    assert work.copying.copy() > 0
    work.repository = ShadowRepository(work.workspace, shadow)
    after = await work.take(log="3")
    assert work.copying.copy() > 0
    for number, (commit, log) in enumerate([(before, "2"), (after, "3")]):
        there = tmp_path / f"there{number}"
        assert fetch_missing_workspace(any_store.url, there, ROLLOUT, (commit, 1))
        workspace = there / "rollouts" / ROLLOUT / "workspace"
        assert (workspace / "log").read_text() == log
        assert len(list((workspace / "d").iterdir())) == len(names)


async def test_a_full_disk_leaves_no_half_of_a_workspace(
    work: Work, any_store: ArtifactStore, tmp_path: Path
) -> None:
    commit = await work.take(**{f"f{number}": os.urandom(50_000).hex() for number in range(20)})
    work.copying.copy()
    there = tmp_path / "small"
    there.mkdir()
    with small_disk.mounted(there, 8):
        filler = small_disk.fill(there, leave=600_000)
        with pytest.raises(WorkspaceNotFetched, match="No space left"):
            fetch_missing_workspace(any_store.url, there, ROLLOUT, (commit, 1))
        folder = there / "rollouts" / ROLLOUT
        assert not (folder / "workspace").exists()
        filler.unlink()
        assert fetch_missing_workspace(any_store.url, there, ROLLOUT, (commit, 1))
        assert read_files(folder / "workspace") == read_files(work.workspace)


def test_a_rollout_of_which_the_store_knows_nothing(
    any_store: ArtifactStore, tmp_path: Path
) -> None:
    with pytest.raises(HoustonError, match=f"has no snapshots of {ROLLOUT}"):
        fetch_shadow(any_store, ROLLOUT, tmp_path / "shadow")
    assert not read_head(tmp_path / "shadow")


async def test_a_bundle_in_the_middle_is_missing(
    work: Work, any_store: ArtifactStore, tmp_path: Path
) -> None:
    """What is there in part is not there: a later try finds the rest."""
    commits = []
    for number in range(3):
        commits.append(await work.take(**{f"f{number}": os.urandom(20).hex()}))
        work.copying.copy()
    name = sorted(any_store.list("snapshots"))[1]
    data = any_store.read(name)
    any_store.remove([name])
    with pytest.raises(HoustonError, match="or a part of it") as missing:
        fetch_shadow(any_store, ROLLOUT, tmp_path / "shadow")
    assert missing.value.code == ExitCode.NOT_FOUND
    assert not (tmp_path / "shadow").exists()
    assert fetch_shadow(any_store, ROLLOUT, tmp_path / "first", commits[0]) == commits[0]
    any_store.write(name, data)
    assert fetch_shadow(any_store, ROLLOUT, tmp_path / "shadow") == commits[2]
