from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_shared.store.store_reader import Reader
from tests.support.written_home import WrittenHome


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenHome]:
    home = WrittenHome(tmp_path / "home")
    yield home
    home.close()


@pytest.fixture
def reader(written: WrittenHome) -> Iterator[Reader]:
    with Reader(written.home) as opened:
        yield opened
