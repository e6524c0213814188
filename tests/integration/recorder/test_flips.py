"""Every single flipped bit and every cut tail is found, wherever in the home it falls."""

import random
from pathlib import Path

from tests.support.flips import STOPPED, killed, run, stopped

TIMES = {
    "event column": 60,
    "derived column": 80,
    "body in the file": 40,
    "blob": 30,
    "head file": 30,
    "database page": 60,
    "cut database": 10,
    "cut events": 10,
}
WAL_TIMES = {"wal": 40, "cut wal": 12}


def test_every_flip_and_cut_of_a_stopped_home_is_found(tmp_path: Path) -> None:
    assert set(TIMES) == set(STOPPED)
    home = stopped(tmp_path / "home")
    counts = run(home, TIMES, random.Random(11), tmp_path)
    assert sum(counts.values()) == sum(TIMES.values())
    assert not {name: count for name, count in counts.items() if name.endswith("missed")}
    harmless = {name for name in counts if name.endswith("harmless")}
    assert harmless <= {"database page: harmless"}, counts


def test_every_flip_and_cut_of_the_wal_is_found(tmp_path: Path) -> None:
    home = killed(tmp_path / "home")
    assert home.database.with_name("houston.db-wal").stat().st_size > 100_000
    counts = run(home, WAL_TIMES, random.Random(12), tmp_path)
    assert set(counts) == {"wal: found", "cut wal: found"}, counts
