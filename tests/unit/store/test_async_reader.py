"""The asynchronous reader: whoever stops waiting for a read leaves the next one a sound reader."""

import asyncio
import threading
from pathlib import Path

import pytest

from houston_shared.errors import HoustonError
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.journal_events import ReadPlan, RunSql
from tests.support.written_home import WrittenHome


def _count(statements: int) -> ReadPlan[int]:
    count = 0
    for _ in range(statements):
        rows = yield RunSql("SELECT count(*) FROM events")
        count = rows[0][0]
    return count


async def _cancelled_after(reader: AsyncReader, turns: int) -> None:
    """A read that is given up after so many turns of the loop, while another one waits for it."""
    given_up = asyncio.create_task(reader.run(_count(3)))
    for _ in range(turns):
        await asyncio.sleep(0)
    waits = asyncio.create_task(reader.run(_count(1)))
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert await waits == 2


async def test_a_read_that_is_given_up_at_any_moment_ends_its_transaction(tmp_path: Path) -> None:
    home = WrittenHome(tmp_path / "home")
    home.rollout("r")
    async with AsyncReader(home.home) as reader:
        for turns in range(30):
            await _cancelled_after(reader, turns)
        for turns in range(30):  # also where the thread had time to answer in between
            await _cancelled_after(reader, turns % 6)
            await asyncio.sleep(0.001)
    home.close()


async def test_a_closed_reader_stays_closed_for_those_who_end_later(tmp_path: Path) -> None:
    """A thread opened after the end would keep the whole program alive."""
    home = WrittenHome(tmp_path / "home")
    home.rollout("r")
    async with AsyncReader(home.home) as reader:
        late = asyncio.create_task(reader.run(_count(3)))  # waits for its turn behind the close
        closing = asyncio.create_task(reader.close())
        await asyncio.gather(late, closing, return_exceptions=True)
    threads = threading.active_count()
    with pytest.raises(HoustonError, match="closed"):
        await reader.run(_count(1))
    assert threading.active_count() == threads
    home.close()
