"""The daemon's own backups: a good one never goes for a bad one, and what went wrong is said."""

from pathlib import Path

import pytest

from houston_daemon.maintenance import home_backup
from houston_daemon.service import periodic_backup
from houston_daemon.service.prometheus_metrics import DatabaseTotals, render_metrics
from houston_shared.config import load_configuration
from houston_shared.control_messages import Status
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from tests.support.full_home import change, fill, flip
from tests.support.recorder_client import Station, until


@pytest.fixture
def home(tmp_path: Path) -> Home:
    station = Station(tmp_path / "home").start()
    fill(station)
    station.stop()
    return station.home


def names(home: Home) -> list[str]:
    return [one.name for one in home_backup.list_backups(home)]


def _bit(folder: Path) -> None:
    flip(folder / "houston.db", 20_000, 3)


def _blob(folder: Path) -> None:
    next(folder.rglob("*.zst")).unlink()


ROTS = {"a bit of its database": _bit, "a blob of it": _blob}


@pytest.mark.parametrize("case", ROTS)
def test_one_that_rotted_counts_for_nothing_and_no_good_one_goes_for_it(
    home: Home, case: str
) -> None:
    good, bad = (home_backup.make_backup(home, periodic=True).name for _ in range(2))
    ROTS[case](home.backups / bad)
    made = home_backup.make_backup(home, periodic=True)
    assert home_backup.prune_backups(home.backups, made, 2) == ([], [bad])
    assert names(home) == [good, made.name]
    assert home_backup.list_corrupt_backups(home.backups) == [bad]
    again = home_backup.make_backup(home, periodic=True)
    assert home_backup.prune_backups(home.backups, again, 2) == ([good], [])
    with pytest.raises(HoustonError, match="is not a backup"):
        home_backup.restore_backup(home.backups / bad, Home(home.path.with_name("new")))


def test_an_unreadable_manifest_stops_no_other_backup(home: Home) -> None:
    old, bad = (home_backup.make_backup(home, periodic=True).name for _ in range(2))
    (home.backups / bad / "manifest.json").write_bytes(b"{")
    made = home_backup.make_backup(home, periodic=True)
    assert home_backup.prune_backups(home.backups, made, 1).removed == [old]
    assert (names(home), home_backup.list_corrupt_backups(home.backups)) == ([made.name], [bad])


def test_a_damaged_home_keeps_its_good_backup_and_says_so_until_one_succeeds(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = home_backup.make_backup(home, periodic=True).name
    change(home, "UPDATE events SET body = x'00' WHERE seq = 5")
    monkeypatch.setattr(periodic_backup, "BACKUP_FIRST_SECONDS", 0.0)
    environment = {"HOUSTON__BACKUP__EVERY_HOURS": "0.000001", "HOUSTON__BACKUP__KEEP": "1"}
    child, now = (
        periodic_backup.PeriodicBackup(load_configuration(str(home.path), environment=environment)),
        1e9,
    )

    def look() -> dict[str, str]:
        nonlocal now
        child.update(now)
        now += 10
        return child.troubles(now)

    assert until(lambda: "exit code 65: the home is not sound" in look().get("backup", ""), 60)
    child.stop()
    assert names(home) == [good]
    assert "\nhouston_backup_trouble 1.0\n" in figures(home, {"backup": "the last one failed"})
    assert "\nhouston_backup_trouble 0.0\n" in figures(home, {"engine far": "gone"})


def figures(home: Home, troubles: dict[str, str]) -> str:
    status = Status(
        pid=1, state="running", uptime=1.0, epoch=1, version="1", home=str(home.path), rollouts={},
        troubles=troubles,
    )  # fmt: skip
    return render_metrics(status, DatabaseTotals(home.database), home).decode()
