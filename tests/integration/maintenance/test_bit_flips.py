"""Every single flipped bit and every cut tail is found, wherever in the home it falls."""

import random
from pathlib import Path

import pytest

from tests.support.bit_flips import STOPPED, killed, run, stopped

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
PARTS = [pytest.param(5, id="a fifth"), pytest.param(1, id="all", marks=pytest.mark.slow)]


def part_of(times: dict[str, int], part: int) -> dict[str, int]:
    return {name: count // part for name, count in times.items()}


@pytest.mark.parametrize("part", PARTS)
def test_every_flip_and_cut_of_a_stopped_home_is_found(tmp_path: Path, part: int) -> None:
    assert set(TIMES) == set(STOPPED)
    times = part_of(TIMES, part)
    home = stopped(tmp_path / "home")
    counts = run(home, times, random.Random(11), tmp_path)
    assert sum(counts.values()) == sum(times.values())
    assert not {name: count for name, count in counts.items() if name.endswith("missed")}
    harmless = {name for name in counts if name.endswith("harmless")}
    assert harmless <= {"database page: harmless"}, counts


@pytest.mark.parametrize("part", PARTS)
def test_every_flip_and_cut_of_the_wal_is_found(tmp_path: Path, part: int) -> None:
    home = killed(tmp_path / "home")
    assert home.database.with_name("houston.db-wal").stat().st_size > 100_000
    counts = run(home, part_of(WAL_TIMES, part), random.Random(12), tmp_path)
    assert set(counts) == {"wal: found", "cut wal: found"}, counts
