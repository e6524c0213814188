"""A daemon of another version: the console says so, reads on, and keeps what was written."""

import random

import pytest

from houston_shared.control_client import decode_reply
from houston_shared.errors import UnknownAnswer
from houston_shared.store.schema import SCHEMA_VERSION
from tests.console.conftest import LiveStation, Sit
from tests.console.fuzzed_daemons import UNKNOWN_ANSWERS, OtherVersion
from tests.console.home_builder import HomeBuilder


@pytest.mark.parametrize("answer", UNKNOWN_ANSWERS)
def test_an_answer_of_another_version_is_one_sentence(answer: bytes) -> None:
    with pytest.raises(UnknownAnswer, match="of another version"):
        decode_reply(answer)


async def test_the_console_reads_on_and_keeps_what_was_written(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    builder.whole("r", 1, "before")
    other = OtherVersion(builder, lambda: None, random.Random(1))
    try:
        async with sit(builder.home) as seat:
            await seat.until(lambda: "another version" in seat.bar("#status"), "the status line")
            await seat.press("5")
            await seat.write("wait for me")
            await seat.press("enter", "escape")
            builder.whole("r", 2, "it goes on")
            await seat.until(lambda: "it goes on" in seat.text(), "what is new")
            await seat.until(lambda: "unsent" in seat.text("#queue"), "it waits")
    finally:
        await other.close()


async def test_what_was_written_is_sent_to_the_daemon_that_follows(
    live: LiveStation, sit: Sit
) -> None:
    rollout = live.person().start()[0]
    live.stop()
    with HomeBuilder(live.home.path) as builder:
        other = OtherVersion(builder, lambda: None, random.Random(1))
        try:
            async with sit(live.home, rollout) as seat:
                await seat.until(lambda: seat.app.state.link == "foreign", "another version")
                await seat.press("5")
                await seat.write("wait for me")
                await seat.press("enter", "escape")
                await other.close()
                builder.close()
                live.again()
                await seat.until(lambda: "queued" in seat.text("#queue"), "sent")
                await seat.until(lambda: seat.app.state.link == "live", "one that it knows")
        finally:
            await other.close()


async def test_a_home_that_is_migrated_meanwhile_is_said_and_ends_nothing(
    builder: HomeBuilder, sit: Sit
) -> None:
    builder.start("r")
    builder.whole("r", 1, "before")
    async with sit(builder.home) as seat:
        builder.connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        builder.whole("r", 2, "of the newer one")
        await seat.until(lambda: "of the newer one" in seat.text() or seat.app.state.problem, "it")
        await seat.press("0", "T", "escape", "j", "enter")
        assert seat.app.is_running
