"""A recorder on a home of its own, for tests of training that start no daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.recorder_client import Station


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path / "home").start()
    try:
        yield made
    finally:
        made.stop()
