"""A rollout of 50,000 steps: what is read depends on the screen, never on the length."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_console.transcript.trajectory_reader import FoldedStepRow, RolloutSource
from houston_shared.records import StepRecord
from tests.console.conftest import Sit
from tests.console.home_builder import HomeBuilder

pytestmark = pytest.mark.slow
STEPS = 50_000


@pytest.fixture(scope="module")
def long_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeBuilder]:
    path: Path = tmp_path_factory.mktemp("long")
    with HomeBuilder(path / "home") as builder:
        with builder.bulk():
            builder.start("long")
            for number in range(1, STEPS + 1):
                builder.begin("long", number, f"thought {number}")
                builder.close_step("long", number)
        yield builder


class Counted(RolloutSource):
    """Counts what is asked of the database."""

    reads: list[tuple[str, int]] = []

    async def rows(self, first: int, last: int) -> list[FoldedStepRow]:
        rows = await super().rows(first, last)
        self.reads.append(("rows", len(rows)))
        return rows

    async def record(self, step: int) -> StepRecord | None:
        self.reads.append(("record", 1))
        return await super().record(step)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    monkeypatch.setattr("houston_console.screens.watch_screen.RolloutSource", Counted)
    Counted.reads = []
    return Counted.reads


def _few(reads: list[tuple[str, int]], most_rows: int) -> bool:
    return sum(count for kind, count in reads if kind == "rows") <= most_rows


async def test_opening_and_jumping_read_a_few_screens(
    long_home: HomeBuilder, reads: list[Any], sit: Sit
) -> None:
    async with sit(long_home.home, "long") as seat:
        assert "thought 50000" in seat.text()
        assert _few(reads, 256), reads
        reads.clear()
        for step in (25_000, 1, 49_999, 12_345):
            await seat.transcript.go_to(step)
            await seat.press()
            assert f"thought {step}" in seat.text()
        assert _few(reads, 4 * 256), reads
        reads.clear()
        await seat.press("j", "k", "j")
        assert _few(reads, 64), reads
        cached, wrapped = seat.transcript.cache.sizes
        assert cached <= 64 * 64
        assert wrapped == 0


async def test_unfolding_all_reads_only_what_is_seen(
    long_home: HomeBuilder, reads: list[Any], sit: Sit
) -> None:
    async with sit(long_home.home, "long") as seat:
        await seat.transcript.go_to(30_000)
        reads.clear()
        await seat.press("z")
        records = sum(1 for kind, _ in reads if kind == "record")
        assert 0 < records < 60, records
        assert "thought 30000" in seat.text()


async def test_a_new_step_costs_the_same_at_any_length(
    long_home: HomeBuilder, reads: list[Any], sit: Sit
) -> None:
    async with sit(long_home.home, "long") as seat:
        reads.clear()
        (call,) = long_home.begin("long", STEPS + 1, "one more")
        await seat.until(lambda: "one more" in seat.text(), "the new step")
        assert _few(reads, 2 * 64), reads
        long_home.answer("long", STEPS + 1, call, "ok")
        long_home.close_step("long", STEPS + 1)
        await seat.until(lambda: "◌" not in seat.text(), "it closed")
        assert _few(reads, 8 * 64), reads
