"""A recorder for the tests of process reward models."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.times_and_counts import iso_time, now_us
from tests.support.recorder_client import Station


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    started = Station(tmp_path / "home").start()
    lock = HomeLock(started.home)  # clients ask only where a daemon holds it
    assert lock.take(HomeOwner(os.getpid(), iso_time(now_us())), "") is None
    yield started
    lock.release()
    started.stop()
