"""The WAL is copied while workers write. What readers can do to it: tests/faults."""

from houston_shared import wire
from tests.support.recorder_client import Station, sample


def test_the_wal_is_copied_again_and_again(station: Station) -> None:
    worker = station.working()
    for attempt in range(1, 1_200):
        ack = worker.sample(1, attempt=attempt, thought=sample(1).thought + "x" * 50_000)
        assert isinstance(ack, wire.Ack)
    wal = station.home.database.with_name("houston.db-wal")
    assert wal.stat().st_size < 32_000_000, "half of what was written"
    assert station.home.database.stat().st_size > 40_000_000
