"""A rig for each test: a real recorder, closed at the end whatever happened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()
