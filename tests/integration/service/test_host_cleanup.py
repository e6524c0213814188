"""Freeing the host of rollouts that have ended: how much, by whom, and what still works then."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.hosts import process_table
from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.snapshots.shadow_repository import ShadowRepository
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from houston_daemon.maintenance.host_cleanup import CleanupOrder
from houston_daemon.maintenance.host_cleanup_child import HostCleaner
from tests.support import small_disk
from tests.support.station import Station

BIG = 3_000_000
WRITE = f"head -c {BIG} /dev/urandom > big.bin; mkdir -p deep/er; chmod 0 deep/er; echo 1 > note"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    yield made
    made.clear()


def test_ended_rollouts_are_freed_and_snapshots_stay_until_they_are_named(
    station: Station, tmp_path: Path
) -> None:
    command = {"name": "run_command", "arguments": {"command": WRITE}}
    more = {"name": "run_command", "arguments": {"command": "rm -f big.bin; echo 2 > note"}}
    engine = station.script([{"thought": "Write.", "calls": [command]}, {"calls": [more]}])
    slow = station.script([{"thought": "Wait.", "calls": [], "delay": 600}], "slow")
    station.start()
    task = station.task(sandbox="none")
    one, two = station.rollout(task, engine, n=2)
    (running,) = station.rollout(task, slow)
    for name in (one, two):
        assert station.ended(name)["state"] == "finished"
    own = {name: station.host_root / "rollouts" / name for name in (one, two, running)}
    before = station.steps(one)
    snapshots = station.query(
        "SELECT step, snapshot FROM steps WHERE rollout = ? ORDER BY step", one
    )

    refused = station.run("rollout", "clean", one, running, code=1).stderr
    assert f"{running} has not ended" in refused
    assert f"houston rollout cancel {running} --wait" in refused
    assert (own[one] / "workspace" / "note").exists(), "all or nothing"

    said = station.run("rollout", "clean", one)
    assert "freed; its snapshots stay" in said.stdout
    assert sorted(path.name for path in own[one].iterdir()) == ["holder", "shadow"]
    assert not (station.host_root / "prepared" / one).exists()
    assert "freed before" in station.run("rollout", "clean", one).stderr
    shown = station.show(one)["cleaned"]
    assert shown["snapshots"] is False
    assert (shown["bytes"] > 0, shown["left"]) == (True, "")
    assert "snapshots stay" in station.run("rollout", "show", one).stdout
    assert station.steps(one) == before, "the journal is whole"
    asyncio.run(_restored(own[one], tmp_path / "again", dict(snapshots)[1]))

    (line,) = station.json("rollout", "clean", one, "--snapshots")
    assert line["snapshots"] is True
    refused = station.run("rollout", "branch", one, "--at", "1", code=1).stderr
    assert f"The snapshots of {one} were freed" in refused and "next: houston rollout" in refused
    assert line["bytes"] > 0
    assert not own[one].exists()
    assert "none of its files can be brought back" in station.run("rollout", "show", one).stdout

    aside = own[two].rename(tmp_path / "aside")
    refused = station.run("rollout", "branch", two, "--at", "1", code=1).stderr
    assert f"The snapshots of {two} are not on this machine ({own[two] / 'shadow'})" in refused
    aside.rename(own[two])
    assert "nothing to free" in station.run("rollout", "clean", "--ended-before", "1h").stderr
    assert (own[two] / "workspace").is_dir()
    (line,) = station.json("rollout", "clean", "--ended-before", "0s")
    assert (line["rollout"], line["left"]) == (two, "")
    assert not (own[two] / "workspace").exists()
    assert (own[running] / "workspace").is_dir(), "it works in it"

    deeds = [json.loads(x) for x in station.run("log", "--audit", "--json").stdout.splitlines()]
    freed = [each for each in deeds if each["did"] == "cleaned"]
    assert [(each["rollout"], each["uid"]) for each in freed] == [
        (one, os.geteuid()), (one, os.geteuid()), (two, os.geteuid()),
    ]  # fmt: skip
    station.run("rollout", "cancel", running, "--wait")
    station.stop()
    assert station.run("verify").stdout.startswith("Sound")
    assert "daemon start" in station.run("rollout", "clean", running, code=69).stderr


async def _restored(own: Path, into: Path, snapshot: str) -> None:
    """A step's files are brought back from what is left."""
    shadow = ShadowRepository(own / "workspace", own / "shadow")
    try:
        assert restore_snapshot(shadow.folder, snapshot, into) == []
    finally:
        shadow._thread.shutdown()
    assert (into / "big.bin").stat().st_size == BIG
    assert (into / "note").read_text() == "1\n"


@pytest.mark.slow
def test_what_another_home_drives_is_left_alone(station: Station, tmp_path: Path) -> None:
    engine = station.script([{"thought": "Nothing.", "calls": []}])
    station.start()
    (one,) = station.rollout(station.task(sandbox="none"), engine)
    station.ended(one)
    other = tmp_path / "other"
    other.mkdir()
    (other / "houston.db").touch()
    own = station.host_root / "rollouts" / one
    station.until(lambda: not (own / "holder").read_text(), 60, "its terminals are ended")
    (own / "holder").write_text(str(other))
    said = station.run("rollout", "clean", one, code=1).stdout
    assert "but not all: The workspace of" in said
    assert (own / "workspace").is_dir()
    (own / "holder").write_text("")
    assert "snapshots stay" in station.run("rollout", "clean", one).stdout


async def test_a_full_disk_is_freed(tmp_path: Path) -> None:
    """Also the terminals end there: what their end would note has no room."""
    small = tmp_path / "small"
    small.mkdir()
    with small_disk.mounted(small, 16):
        host = LocalHost(small, "r-1", sandbox="none", network=False, hidden=(), owner="/home/a")
        try:
            await host.prepare(None)
            terminal = await host.terminal("main", create=True)
            shell = terminal.state.shell
            (host.workspace / "big").write_bytes(bytes(BIG))
            await host.close()
            small_disk.fill(small)

            cleaner = HostCleaner("/home/a")
            await cleaner.execute_order(CleanupOrder(str(small), "r-1", "processes"))
            assert not process_table.is_alive(shell)
            report = await cleaner.execute_order(CleanupOrder(str(small), "r-1", "files"))
            assert (report.left, report.bytes > BIG) == ("", True)
            assert not host.workspace.exists()
        finally:
            await host.destroy_terminals()
