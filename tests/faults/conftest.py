"""A ground for a test of its own: closed at the end, whatever happened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.daemon_under_test import Ground


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path / "ground")
    try:
        yield made
    finally:
        made.close()
