"""A worker on another machine copies its own snapshots: the daemon's copies do not reach them."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_daemon.agent import store_workspace
from houston_daemon.agent.store_workspace import SnapshotCopies, WorkerStore
from houston_daemon.artifacts import store_owner
from houston_daemon.artifacts.artifact_store import ArtifactStore
from houston_daemon.artifacts.missing_files import (
    WorkspaceNotFetched,
    fetch_missing_workspace,
    set_old_workspace_aside,
)
from houston_daemon.artifacts.snapshot_bundles import list_bundles
from houston_daemon.hosts.rollout_workspace import read_fetch_note
from houston_shared.home import Home
from tests.integration.artifacts.test_snapshot_bundles import ROLLOUT, Work
from tests.support.s3_server import Line

NODE = "gpu1/4f2a"


async def until(condition: Callable[[], object]) -> None:
    for _ in range(600):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("not within 30 s")


@pytest.fixture
def node_work(tmp_path: Path, any_store: ArtifactStore) -> Work:
    """On the disk of a node."""
    return Work(tmp_path / "node", any_store)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "home").mkdir()
    return Home(tmp_path / "home")


def copies(
    home: Home, store: ArtifactStore, work: Work, tell: Callable[[str], None] = lambda _: None
) -> SnapshotCopies:
    owner = store_owner.name_owner(str(home.path), NODE)
    return SnapshotCopies(WorkerStore(store.url, owner), ROLLOUT, work.folder.parents[1], tell)


async def test_a_node_that_is_lost_leaves_its_snapshots(
    home: Home, node_work: Work, any_store: ArtifactStore, tmp_path: Path
) -> None:
    store_owner.claim(any_store, home, NODE)
    copying = copies(home, any_store, node_work)
    first = await node_work.take(a="1")
    await until(lambda: list_bundles(any_store, ROLLOUT))
    second = await node_work.take(a="2")
    await copying.end()
    third = await node_work.take(a="3")  # the node is lost before it was copied
    snapshots = [(third, 3), (second, 2), (first, 1)]
    assert fetch_missing_workspace(any_store.url, tmp_path / "there", ROLLOUT, *snapshots)
    workspace = tmp_path / "there" / "rollouts" / ROLLOUT / "workspace"
    assert (workspace / "a").read_text() == "2"
    note = read_fetch_note(workspace)
    assert note is not None and note.step == 2, "the agent is told which step it is of"
    with pytest.raises(WorkspaceNotFetched, match="lacks the snapshot"):
        fetch_missing_workspace(any_store.url, tmp_path / "other", ROLLOUT, (third, 3))


async def test_an_old_workspace_on_a_node_that_came_back_is_set_aside(
    node_work: Work, any_store: ArtifactStore, tmp_path: Path
) -> None:
    root, first = node_work.folder.parents[1], await node_work.take(a="1")
    node_work.copying.copy()
    assert not set_old_workspace_aside(root, ROLLOUT, first)
    there = tmp_path / "there"
    assert fetch_missing_workspace(any_store.url, there, ROLLOUT, (first, 1))
    elsewhere = Work(there, any_store)
    second = await elsewhere.take(a="2")
    elsewhere.copying.copy()
    third = await elsewhere.take(a="3")  # of a step that was not stored
    assert not set_old_workspace_aside(there, ROLLOUT, second), "it is newer, not older"
    assert third and set_old_workspace_aside(root, ROLLOUT, second)
    assert fetch_missing_workspace(any_store.url, root, ROLLOUT, (second, 2))
    assert (node_work.workspace / "a").read_text() == "2"
    (aside,) = node_work.folder.glob("workspace.before-*")
    assert (aside / "a").read_text() == "1", "nothing is removed"


async def test_a_workspace_whose_last_snapshot_a_power_cut_took_stays(
    node_work: Work, any_store: ArtifactStore
) -> None:
    await node_work.take(a="1")
    node_work.copying.copy()
    last = await node_work.take(a="2")
    await node_work.repository.close()
    (node_work.folder / "shadow" / "objects" / last[:2] / last[2:]).unlink()
    assert not set_old_workspace_aside(node_work.folder.parents[1], ROLLOUT, last)


@pytest.mark.parametrize(
    ("owner", "cause"), [("", "No home has written"), ("gpu9/0000", "is written by the home")]
)
async def test_only_snapshots_of_the_home_that_writes_are_copied(
    home: Home,
    node_work: Work,
    any_store: ArtifactStore,
    caplog: pytest.LogCaptureFixture,
    owner: str,
    cause: str,
) -> None:
    """owner: the host that has claimed the prefix; a restored copy of a home is no owner."""
    if owner:
        store_owner.claim(any_store, home, owner)
    await node_work.take(a="1")
    with caplog.at_level(logging.WARNING):
        copying = copies(home, any_store, node_work)
        await copying.end()
    assert cause in caplog.text
    assert not list_bundles(any_store, ROLLOUT)


async def test_a_store_that_is_gone_is_said_once_and_tried_again(
    home: Home,
    line: Line,
    url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_workspace, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(store_workspace, "MAX_DELAY_SECONDS", 0.1)
    store = ArtifactStore(url)
    store_owner.claim(store, home, NODE)
    work = Work(tmp_path / "node", store)
    line.fault = "forbidden"
    told: list[str] = []
    with caplog.at_level(logging.WARNING, "houston_daemon"):
        copying = copies(home, store, work, told.append)
        await work.take(a="1")
        await until(lambda: caplog.records)
        await asyncio.sleep(1.0)
        line.fault = ""
        await until(lambda: list_bundles(store, ROLLOUT))
        await copying.end()
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) == 1
    assert "Houston tries again" in caplog.text
    assert told == [caplog.records[0].getMessage(), ""], "the status says it until it is mended"


async def test_a_last_snapshot_that_the_store_lacks_is_said(
    home: Home, line: Line, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the reason is that of the tries before."""
    store = ArtifactStore(url)
    store_owner.claim(store, home, NODE)
    work = Work(tmp_path / "node", store)
    line.fault = "forbidden"
    with caplog.at_level(logging.WARNING, "houston_daemon"):
        copying = copies(home, store, work)
        await work.take(a="1")
        await until(lambda: caplog.records)
        await copying.end()
    _, last = caplog.records
    assert last.getMessage().startswith("the store lacks the last snapshot: ")
