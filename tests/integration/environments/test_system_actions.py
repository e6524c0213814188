"""Thinking, sleeping and finishing."""

import asyncio
import time

import pytest

from houston_daemon.environments.environment_protocol import Stop
from houston_shared.task import BudgetSettings
from tests.integration.environments.conftest import MakeStation, Station


async def test_think_never_twice_in_a_row_even_over_a_restart(station: Station) -> None:
    assert (await station("think", thought="a plan")).kind == "think"
    twice = await station("think", thought="another")
    assert (twice.kind, twice.success) == ("error", False)
    await station.again()
    assert not (await station("think", thought="yet another")).success
    await station("list_files")
    assert (await station("think", thought="now")).success


async def test_sleep_ends_by_time(station: Station) -> None:
    call = station.call("sleep", sleep_time=1)
    deadline = station.environment.deadline(call)
    assert 0 < deadline - time.time() <= 1
    result = await station("sleep", sleep_time=1)
    assert (result.kind, result.fields["ended_by"], result.fields["away"]) == (
        "sleep",
        "time",
        False,
    )
    assert result.fields["slept"] >= 1


@pytest.mark.parametrize("reason", ["wake", "interrupt"])
async def test_a_persons_word_ends_a_sleep(station: Station, reason: str) -> None:
    stop = Stop()

    async def speak() -> None:
        await asyncio.sleep(0.2)
        stop.reason = reason  # type: ignore[assignment]
        stop.event.set()

    speaking = asyncio.create_task(speak())
    result = await station("sleep", sleep_time=30, stop=stop)
    await speaking
    assert result.fields["ended_by"] == reason
    assert result.fields["slept"] < 30
    assert "person" in result.text


async def test_a_wake_that_came_first_cancels_the_sleep(station: Station) -> None:
    stop = Stop(reason="wake")
    stop.event.set()
    result = await station("sleep", sleep_time=30, stop=stop)
    assert (result.fields["ended_by"], result.fields["slept"] < 1) == ("wake", True)


async def test_sleep_is_limited_by_the_task(station: Station) -> None:
    result = await station("sleep", sleep_time=31)
    assert (result.kind, "at most 30" in result.text) == ("error", True)
    assert station.environment.deadline(station.call("sleep", sleep_time=31)) == 0
    assert station.environment.deadline(station.call("list_files")) == 0


async def test_finish_is_refused_too_early(make_station: MakeStation) -> None:
    station = await make_station(budget=BudgetSettings(minimum_steps=8))
    station.step = 7
    early = await station("finish")
    assert (early.kind, early.success, early.fields["finished"]) == ("finish", False, False)
    assert "before step 8; this is step 7" in early.text
    station.step = 8
    done = await station("finish")
    assert (done.kind, done.success, done.fields) == ("finish", True, {"finished": True})
