"""A station with a daemon, and files that other programs wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.station import Station

FILES = Path(__file__).parent / "files"


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("interchange"))
    made.start()
    yield made
    made.clear()


@pytest.fixture(scope="session")
def files() -> Path:
    return FILES
