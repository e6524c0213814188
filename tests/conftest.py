"""Fixtures for every test: a station that is always stopped, its engine too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.station import Station


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    """A station that is not started; stopped at the end whatever happened."""
    made = Station(tmp_path)
    yield made
    made.clear()
