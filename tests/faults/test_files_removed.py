"""Files are removed from a home whose daemon runs: it stops, says so, and nothing acked is lost."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.maintenance.journal_repair import repair_home
from houston_daemon.recorder.recorder_handle import RecorderFailed
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from tests.support.recorder_client import Station, until
from tests.support.tiers import sampled


def _another(home: Path) -> None:
    """Somebody puts another database there by a rename, as a restore by hand does."""
    shutil.copy(home / "houston.db", home / "other.db")
    (home / "other.db").replace(home / "houston.db")


REMOVED: dict[str, Callable[[Path], object]] = {
    "the database": lambda home: (home / "houston.db").unlink(),
    "its WAL": lambda home: (home / "houston.db-wal").unlink(),
    "all three": lambda home: [path.unlink() for path in home.glob("houston.db*")],
    "the database, moved": lambda home: (home / "houston.db").rename(home / "moved.db"),
}


def cause(station: Station) -> str:
    """What the recorder ended with."""
    assert until(lambda: any(isinstance(event, RecorderFailed) for event in station.heard))
    (said,) = [event.cause for event in station.heard if isinstance(event, RecorderFailed)]
    return said


@pytest.mark.parametrize("what", sampled(REMOVED, 2))
def test_what_was_acked_is_put_back(tmp_path: Path, what: str) -> None:
    station = Station(tmp_path / "home").start()
    worker = station.working()
    for step in (1, 2, 3):
        worker.step(step)
    stored = station.query("SELECT seq, chain FROM events ORDER BY seq")
    REMOVED[what](station.home.path)
    assert "removed or replaced while the daemon ran; everything stored" in cause(station)
    station.restart()
    try:
        assert station.query("SELECT seq, chain FROM events ORDER BY seq")[: len(stored)] == stored
        assert station.working().step(1)
    finally:
        station.stop()
    assert verify_home(station.home).findings == ()


def test_a_database_in_its_place_is_left_there_and_ours_is_kept_aside(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    station.working().step(1)
    stored = station.query("SELECT seq, chain FROM events ORDER BY seq")
    _another(station.home.path)
    there = os.stat(station.home.database).st_ino
    said = cause(station)
    station.stop()
    assert os.stat(station.home.database).st_ino == there
    kept = Path(said.partition("everything stored is in ")[2])
    rows = sqlite3.connect(kept).execute("SELECT seq, chain FROM events ORDER BY seq").fetchall()
    assert rows == stored


def test_a_home_that_was_removed_stays_removed(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    station.working().step(1)
    shutil.rmtree(station.home.path)
    assert "the home itself is gone" in cause(station)
    station.stop()
    assert not station.home.path.exists()


def _remove(home: Home) -> None:
    home.head_file.unlink()


def _folder(home: Home) -> None:
    home.head_file.unlink()
    home.head_file.mkdir()


HEADLESS = {
    "no head file": (
        _remove,
        "chain.head is missing: it cannot be told whether the end was cut off.",
    ),
    "a folder in its place": (_folder, "chain.head cannot be read (Is a directory)."),
}


@pytest.mark.parametrize("what", HEADLESS)
def test_a_cut_end_cannot_be_hidden_by_removing_the_head(tmp_path: Path, what: str) -> None:
    station = Station(tmp_path / "home").start()
    station.working().step(1)
    station.stop()
    connection = sqlite3.connect(station.home.database)
    connection.execute("DELETE FROM events WHERE seq > (SELECT max(seq) - 3 FROM events)")
    connection.commit()
    connection.close()
    harm, sentence = HEADLESS[what]
    harm(station.home)
    with pytest.raises(HoustonError) as refused:
        station.restart()
    assert refused.value.code == ExitCode.DAMAGED
    assert sentence in refused.value.cause
    assert "houston repair" in refused.value.next
    if station.home.head_file.is_dir():
        station.home.head_file.rmdir()
    repair_home(station.home)
    station.restart()  # a person decided
    station.stop()
