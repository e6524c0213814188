"""The WAL is copied while workers write. What readers can do to it: tests/faults."""

from pathlib import Path

from houston_shared import wire
from houston_shared.home import Home
from tests.support.killed_recorder import Killed
from tests.support.recorder_client import Person, Station, Worker, sample


def test_the_wal_is_copied_again_and_again(station: Station) -> None:
    worker = station.working()
    for attempt in range(1, 1_200):
        ack = worker.sample(1, attempt=attempt, thought=sample(1).thought + "x" * 50_000)
        assert isinstance(ack, wire.Ack)
    wal = station.home.database.with_name("houston.db-wal")
    assert wal.stat().st_size < 32_000_000, "half of what was written"
    assert station.home.database.stat().st_size > 40_000_000


def test_recorders_killed_before_their_first_copy_do_not_make_it_grow(tmp_path: Path) -> None:
    """Each stores less than is copied at once, and dies; the next one copies what it left."""
    home = Home(tmp_path / "home")
    recorder = Killed(home)
    person = Person(home)
    (rollout,) = person.start()
    person.close()
    wal, sizes = home.database.with_name("houston.db-wal"), []
    for life in range(6):
        worker = Worker(home, rollout, recorder.lease(rollout))
        for attempt in range(60 * life + 1, 60 * life + 61):
            ack = worker.sample(1, attempt=attempt, thought="x" * 50_000)
            assert isinstance(ack, wire.Ack)
        worker.close()
        recorder.kill()
        sizes.append(wal.stat().st_size)
        recorder.begin()
    recorder.kill()
    assert sizes[-1] < 2 * sizes[0], sizes
