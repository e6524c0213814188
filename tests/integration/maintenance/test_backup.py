"""`houston backup`: made while the daemon works, a home itself, restored and gone on with."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.maintenance import home_backup
from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.maintenance.journal_repair import repair_home
from houston_shared import wire
from houston_shared.config_sections import BackupSettings
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.hub_models import pins_file
from tests.support import small_disk
from tests.support import station as real
from tests.support.full_home import fill, flip
from tests.support.houston_command import houston_command
from tests.support.recorder_client import Station, Worker, until

STEP = {"thought": "Look.", "calls": [{"name": "run_command", "arguments": {"command": "true"}}]}


@pytest.fixture
def station(tmp_path: Path) -> Iterator[real.Station]:
    made = real.Station(tmp_path)
    yield made
    made.clear()


def test_made_under_load_restored_elsewhere_and_gone_on_with(
    station: real.Station, tmp_path: Path
) -> None:
    engine = station.script([{**STEP, "delay": 0.05}] * 600)
    station.start()
    one, two = station.rollout(station.task(sandbox="none"), engine, n=2)
    station.until(lambda: station.closed(one) >= 3)
    (made,) = station.json("backup")
    (shown,) = station.json("backup", "--list")
    assert shown == made
    then = {name: station.closed(name) for name in (one, two)}
    for name, steps in then.items():
        station.until(lambda n=name, s=steps: station.closed(n) > s, why="it goes on beside it")
    later = {name: station.show(name)["steps"] for name in (one, two)}
    for name in (one, two):
        station.run("rollout", "cancel", name)
    station.stop()

    other = real.Station(tmp_path / "other")
    other.folder.mkdir()
    other.host_root = station.host_root
    other.environment["HOUSTON__HOSTS__ROOT"] = str(station.host_root)
    folder = station.home / "backups" / made["name"]
    said = other.run("backup", "--restore", str(folder)).stdout
    assert f"to event {made['seq']}" in said
    assert other.run("backup", "--restore", str(folder), code=78).stderr.count("not empty")
    assert other.run("verify").stdout.startswith("Sound")
    then = {name: other.show(name)["steps"] for name in (one, two)}
    assert all(then[name] < later[name] for name in then)
    try:
        other.start()
        for name in (one, two):
            assert other.show(name)["paused_by"] == "restore", "a person decides"
            other.run("rollout", "resume", name)
            other.until(lambda n=name: other.closed(n) > then[n], why=f"{name} goes on")
    finally:
        other.clear()
    assert other.run("verify").stdout.startswith("Sound")


@pytest.mark.slow
def test_two_homes_never_drive_one_workspace(station: real.Station, tmp_path: Path) -> None:
    """A restored home waits; also when it shall go on while the first still has the rollout."""
    engine = station.script([{**STEP, "delay": 0.05}] * 600)
    station.start()
    (rollout,) = station.rollout(station.task(sandbox="none"), engine)
    station.until(lambda: station.closed(rollout) >= 2)
    (made,) = station.json("backup")
    other = real.Station(tmp_path / "other")
    other.folder.mkdir()
    other.host_root = station.host_root
    other.environment["HOUSTON__HOSTS__ROOT"] = str(station.host_root)
    folder = station.home / "backups" / made["name"]
    said = other.run("backup", "--restore", str(folder)).stderr
    assert f"{rollout}: paused by restore" in said
    assert str(station.home) in said
    try:
        other.start()
        other.run("rollout", "resume", rollout)
        held = other.until(lambda: _paused_by(other, rollout, "host"), 60, "it is held")
        assert f"the home {station.home} is at work" in held["reason"]
        before = held["steps"]
        terminal = station.host_root / "rollouts" / rollout
        steps = station.show(rollout)["steps"]
        station.until(lambda: station.closed(rollout) > steps, why="the first goes on")
        assert (terminal / "holder").read_text() == str(station.home)
        station.stop()
        other.run("rollout", "resume", rollout)
        held = other.until(lambda: _paused_by(other, rollout, "host"), 60, "it is the first's")
        assert "has a rollout of that name" in other.until(
            lambda: (one := _paused_by(other, rollout, "host")) and one["reason"], 20
        )
        assert other.show(rollout)["steps"] == before
        (terminal / "holder").unlink()
        other.run("rollout", "resume", rollout)
        other.until(lambda: other.closed(rollout) > before, why="a person decided")
        station.start()
        held = station.until(lambda: _paused_by(station, rollout, "host"), 60, "now the first")
        assert str(other.home) in held["reason"]
        station.run("rollout", "cancel", rollout)
        last = other.show(rollout)["steps"]
        other.until(lambda: other.closed(rollout) > last, why="nobody ended its terminals")
    finally:
        other.clear()
    assert other.run("verify").stdout.startswith("Sound")


def _paused_by(station: real.Station, rollout: str, owner: str) -> dict[str, Any] | None:
    row = station.show(rollout)
    return row if row["state"] == "paused" and row["paused_by"] == owner else None


def test_a_copy_holds_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    fill(station)
    home = station.home
    home.configuration.write_text("# mine\n")
    pins_file(home).write_text("{}\n")
    stray = home.blobs / "aa" / ("a" * 64 + ".zst")
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"named by nobody")
    made = home_backup.make_backup(home, tmp_path / "elsewhere")
    station.stop()
    copy = Home(tmp_path / "elsewhere" / made.name)
    assert sorted(path.name for path in copy.path.iterdir()) == [
        "blobs", "chain.head", "houston.db", "houston.toml", "hub_models.json", "manifest.json",
    ]  # fmt: skip
    assert len(list(copy.blobs.rglob("*.zst"))) == made.blobs == 1
    assert verify_home(copy).findings == ()
    assert home_backup.read_backup_manifest(copy.path) == made
    flip(copy.database, copy.database.stat().st_size // 2, 1)
    with pytest.raises(HoustonError, match="is not the file that was backed up"):
        home_backup.restore_backup(copy.path, Home(tmp_path / "new"))


def test_writing_goes_on_while_the_copy_is_made(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    worker = station.working()
    over = threading.Event()
    done: list[int] = []

    def work(worker: Worker) -> None:
        step = 0
        while not over.is_set():
            step += 1
            worker.step(step)
            done.append(step)

    thread = threading.Thread(target=work, args=(worker,))
    thread.start()
    assert until(lambda: len(done) > 50)
    try:
        for _ in range(3):
            before = len(done)
            made = home_backup.make_backup(station.home)
            assert made.seq >= 4 * before
            assert until(lambda n=before: len(done) > n)
    finally:
        over.set()
        thread.join()
    station.stop()
    assert len(home_backup.list_backups(station.home)) == 3


def test_only_old_backups_of_the_series_are_removed(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    station.stop()
    home = station.home
    series = [home_backup.make_backup(home, periodic=True)]
    own = home_backup.make_backup(home)
    series += [home_backup.make_backup(home, periodic=True) for _ in range(2)]
    assert home_backup.prune_backups(home.backups, series[-1], 2).removed == [series[0].name]
    assert [one.name for one in home_backup.list_backups(home)] == [
        own.name, series[1].name, series[2].name,
    ]  # fmt: skip
    # The clock has been set back since.
    os.utime(home.backups / series[1].name / "manifest.json", (4e9, 4e9))
    age = home_backup.measure_backup_age(home)
    assert age is not None
    assert 0 <= age < 3_600
    left = home_backup.prune_backups(home.backups, series[1], 1).removed
    assert left == [series[2].name], "the one just made stays"


def test_a_wrong_backup_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    fill(station)
    made = home_backup.make_backup(station.home)
    station.stop()
    home = station.home
    next(home.blobs.rglob("*.zst")).unlink()
    for wrong in (Path("/nowhere/at/all"), home.blobs, Path("2001-01-01-000000")):
        with pytest.raises(HoustonError, match=r"does not exist|holds no backup"):
            repair_home(home, wrong)
    assert not home.damaged.exists()
    for good in (home.backups, Path(made.name), home.backups / made.name):
        assert home_backup.find_one_backup(home, good) == home.backups / made.name
    assert repair_home(home, Path(made.name)).changed


def test_a_full_disk_leaves_no_half_of_a_restored_home(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    fill(station)
    made = home_backup.make_backup(station.home)
    station.stop()
    (tmp_path / "small").mkdir()
    with small_disk.mounted(tmp_path / "small", 8):
        home = Home(tmp_path / "small" / "home")
        home.logs.mkdir(parents=True)
        log = home.logs / "daemon.log"
        log.write_text("of the one before")
        filler = small_disk.fill(tmp_path / "small", leave=100_000)
        for _ in range(2):
            with pytest.raises(HoustonError, match="No space left") as refused:
                home_backup.restore_backup(station.home.backups / made.name, home)
            assert refused.value.effect == "Nothing was restored."
            assert [path for path in home.path.rglob("*") if path.is_file()] == [log]
        filler.unlink()
        home_backup.restore_backup(station.home.backups / made.name, home)
        assert verify_home(home).sound


KILLED = """
import os, signal
from houston_daemon.maintenance import {module}
from houston_shared.command import main

{module}.{before} = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
main()
"""
"""A command that is killed when it comes to one of its functions."""


def houston(home: Home, *words: str, code: int = 0, killed: str = "") -> str:
    words = (*words, "--home", str(home.path))
    done = subprocess.run(
        [sys.executable, "-c", killed, *words] if killed else houston_command(*words),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_what_a_killed_copy_leaves_is_shown_and_removed_by_the_next(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    worker = station.working()
    worker.step(1)
    worker.say(wire.StoreState, state="finished")
    station.stop()
    home, archive = station.home, ("rollout", "archive", worker.rollout, "--yes")
    killed = KILLED.format(module="home_backup", before="_build_checked_manifest")
    houston(home, "backup", code=-9, killed=killed)
    (half,) = home.backups.iterdir()
    assert f"{half} was cut short" in houston(home, "backup", "--list")
    houston(home, "backup")
    assert not half.exists()
    assert "cut short" not in houston(home, "backup", "--list")
    killed = KILLED.format(module="durable_copy", before="os.fsync")
    houston(home, *archive, code=-9, killed=killed)
    (half,) = home.archives.iterdir()
    assert half.name.endswith(".new")
    houston(home, *archive)
    assert [path.suffix for path in home.archives.iterdir()] == [".zst"]


def test_a_copy_is_never_written_among_the_files_of_the_home(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    fill(station)
    station.stop()
    for place in (station.home.blobs, station.home.path, station.home.backups / "mine"):
        assert "is inside the home" in houston(station.home, "backup", "--out", str(place), code=2)
    station.home.backups.mkdir()
    fd = os.open(station.home.backups, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)  # as another backup that is being made
    assert "is being written" in houston(station.home, "backup", code=75)
    os.close(fd)
    houston(station.home, "backup", "--out", str(station.home.backups))
    assert verify_home(station.home).findings == ()


def test_an_unsound_home_makes_no_backup(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    fill(station)
    station.stop()
    next(station.home.blobs.rglob("*.zst")).unlink()
    with pytest.raises(HoustonError) as problem:
        home_backup.make_backup(station.home)
    assert problem.value.code == ExitCode.DAMAGED
    assert list(station.home.backups.iterdir()) == [], "nothing that could be taken for one"


def test_the_daemon_makes_one_by_itself_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from houston_daemon.service import periodic_backup
    from houston_shared.config import load_configuration

    station = Station(tmp_path / "home").start()
    fill(station)
    monkeypatch.setattr(periodic_backup, "BACKUP_FIRST_SECONDS", 0.0)
    for _ in range(2):
        loaded = load_configuration(
            str(station.home.path), environment={"HOUSTON__BACKUP__EVERY_HOURS": "1"}
        )
        child = periodic_backup.PeriodicBackup(loaded)
        now = 1e9

        def look(child: periodic_backup.PeriodicBackup = child, now: float = now) -> bool:
            child.update(now)
            return bool(home_backup.list_backups(station.home))

        assert until(look, 60)
        child.stop()
    station.stop()
    (made,) = home_backup.list_backups(station.home)
    assert made.periodic
    assert json.loads((station.home.backups / made.name / "manifest.json").read_bytes())


def test_a_backup_that_failed_or_is_late_is_a_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from houston_daemon.service import periodic_backup
    from houston_shared.config import load_configuration

    station = Station(tmp_path / "home").start()
    fill(station)
    station.stop()
    monkeypatch.setattr(periodic_backup, "BACKUP_FIRST_SECONDS", 0.0)
    loaded = load_configuration(
        str(station.home.path), environment={"HOUSTON__BACKUP__EVERY_HOURS": "2"}
    )
    station.home.backups.write_text("in the way of every backup")
    child, now = periodic_backup.PeriodicBackup(loaded), 1e9

    def look() -> dict[str, str]:
        nonlocal now
        child.update(now)
        now += 10
        return child.troubles(now)

    assert until(look, 60)
    assert "failed (exit code 1)" in look()["backup"]
    before = loaded.config
    loaded.config = msgspec.structs.replace(before, backup=BackupSettings(every_hours=0))
    assert look() == {}, "nobody wants one any more"
    loaded.config = before
    station.home.backups.unlink()
    made = home_backup.make_backup(station.home)
    assert look() == {}, "a person made one"
    manifest = station.home.backups / made.name / "manifest.json"
    os.utime(manifest, (time.time() - 4 * 3_600,) * 2)
    assert "the newest is 4 h old" in look()["backup"]
    child.stop()
