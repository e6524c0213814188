"""A reader opens what it may, says in one sentence why it cannot, and never writes."""

import asyncio
import multiprocessing
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.records import ToolCall
from houston_shared.store import rollout_queries, schema, step_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.store_reader import Reader, ReadFailed
from tests.support.written_home import WrittenHome, sample

CALL = ToolCall(id="1.0", name="list_dir", arguments={})


def nothing(home: Home) -> None:
    home.path.mkdir()


def empty_file(home: Home) -> None:
    home.path.mkdir()
    home.database.touch()


def no_tables(home: Home) -> None:
    home.path.mkdir()
    connection = sqlite3.connect(home.database)
    connection.execute("CREATE TABLE other (x)")
    connection.commit()
    connection.close()


def not_a_database(home: Home) -> None:
    home.path.mkdir()
    home.database.write_bytes(b"this is no database at all" * 400)


def newer_schema(home: Home) -> None:
    WrittenHome(home.path).close()
    connection = sqlite3.connect(home.database)
    connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    connection.close()


REFUSED = {
    "no home": (lambda home: None, "There is no database", ExitCode.NOT_FOUND),
    "no database": (nothing, "There is no database", ExitCode.NOT_FOUND),
    "empty file": (empty_file, "There is no database", ExitCode.NOT_FOUND),
    "no tables": (no_tables, "has no tables yet", ExitCode.FAILED),
    "not a database": (not_a_database, "is damaged", ExitCode.FAILED),
    "newer schema": (newer_schema, f"schema {schema.SCHEMA_VERSION + 1}", ExitCode.CONFIGURATION),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_home_that_cannot_be_read_is_refused_with_a_sentence(
    case: str, tmp_path: Path
) -> None:
    make, sentence, code = REFUSED[case]
    home = Home(tmp_path / "home")
    make(home)
    with pytest.raises(HoustonError, match=sentence) as caught:
        Reader(home).open()
    assert (caught.value.code, bool(caught.value.next)) == (code, True)
    with pytest.raises(HoustonError, match=sentence):
        await AsyncReader(home).open()


def test_a_reader_cannot_write(written: WrittenHome) -> None:
    with Reader(written.home) as reader:
        assert reader._journal is not None
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._journal.connection.execute("DELETE FROM meta")


async def test_both_readers_give_the_same(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    written.rollout("r2", task="other")
    written.step("r1", 1, sample(calls=(CALL,)), ("long",), blob=True)
    async with AsyncReader(written.home) as twin:
        for plan in (
            rollout_queries.list_rollouts,
            rollout_queries.list_tasks,
            lambda: step_queries.read_steps("r1"),
        ):
            assert await twin.run(plan()) == reader.run(plan())
        with pytest.raises(HoustonError, match="no rollout"):
            await twin.run(rollout_queries.find_rollout("nobody"))
        version = await twin.data_version()
        written.rollout("r3")
        assert await twin.data_version() != version


ENDLESS = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def endless() -> ReadPlan[None]:
    yield RunSql(ENDLESS)


async def test_a_cancelled_read_ends_at_once_and_the_next_one_works(written: WrittenHome) -> None:
    written.rollout("r1")
    async with AsyncReader(written.home) as reader:
        reading = asyncio.create_task(reader.run(endless()))
        await asyncio.sleep(0.2)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert (
            await asyncio.wait_for(reader.run(rollout_queries.resolve_rollout_id("r1")), 20) == "r1"
        )


def test_a_read_is_interrupted_from_another_thread(written: WrittenHome, reader: Reader) -> None:
    timer = threading.Timer(0.2, reader.interrupt)
    timer.start()
    with pytest.raises(ReadFailed, match="interrupted"):
        reader.run(endless())
    timer.join()
    assert reader.run(rollout_queries.newest_seq()) == 0


def test_data_version_changes_when_somebody_else_commits(
    written: WrittenHome, reader: Reader
) -> None:
    before = reader.data_version()
    assert reader.data_version() == before
    written.rollout("r1")
    assert reader.data_version() != before


def test_a_plan_sees_one_state_of_the_journal(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")

    def twice():  # type: ignore[no-untyped-def]
        first = yield from rollout_queries.newest_seq()
        written.rollout("r2")
        return first, (yield from rollout_queries.newest_seq())

    first, second = reader.run(twice())
    assert first == second
    assert reader.run(rollout_queries.newest_seq()) > second


def test_no_transaction_is_left_open_after_a_plan_or_its_failure(
    written: WrittenHome, reader: Reader
) -> None:
    reader.run(rollout_queries.newest_seq())
    with pytest.raises(HoustonError):
        reader.run(rollout_queries.find_rollout("nobody"))
    assert reader._journal is not None
    assert not reader._journal.connection.in_transaction
    # A pinned reader would keep this from truncating the log.
    assert written.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def as_reader_without_rights(read: Callable[[], object], *more: Callable[[], object]) -> None:
    """Run steps in turn: the even ones as a user who may only read, the odd ones here.

    A forked child that has given up root, so that the kernel itself refuses.
    """
    turns = [multiprocessing.get_context("fork").Event() for _ in range(len(more) + 1)]

    def child() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        for number, step in enumerate((read, *more)):
            if number % 2 == 0:
                assert not number or turns[number - 1].wait(20)
                step()
                turns[number].set()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    for number, step in enumerate(more, 1):
        if number % 2:
            assert turns[number - 1].wait(20), "the reader came to its end"
            step()
            turns[number].set()
    process.join(20)
    assert process.exitcode == 0


@pytest.fixture
def read_only_ground() -> Iterator[Path]:
    """A folder that others may read and not write, with every parent passable."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_after_a_clean_stop_a_group_reader_reads_and_follows_when_the_daemon_is_back(
    read_only_ground: Path,
) -> None:
    """No -wal, and no right to make one: opened as unchanging, until a -wal is there."""
    written = WrittenHome(read_only_ground / "home")
    written.home.path.chmod(0o755)
    written.rollout("r1")
    written.close()
    reader = Reader(written.home)
    versions: list[object] = []
    back: list[sqlite3.Connection] = []

    def stopped() -> None:
        assert reader.run(rollout_queries.resolve_rollout_id("r1")) == "r1"
        assert reader._journal is not None
        assert reader._journal.immutable
        versions.append(reader.data_version())

    def daemon_is_back() -> None:
        back.append(sqlite3.connect(written.home.database, isolation_level=None))
        back[0].execute("UPDATE rollouts SET id = 'r9'")

    def running() -> None:
        assert reader.run(rollout_queries.resolve_rollout_id("r9")) == "r9"
        assert reader._journal is not None
        assert not reader._journal.immutable
        assert reader.data_version() not in versions

    as_reader_without_rights(stopped, daemon_is_back, running)
    back[0].close()


def test_a_home_that_may_not_be_read_is_refused_with_a_sentence(read_only_ground: Path) -> None:
    written = WrittenHome(read_only_ground / "home")
    written.close()
    written.home.database.chmod(0o600)
    if os.geteuid():
        written.home.database.chmod(0)

    def refused() -> None:
        with pytest.raises(HoustonError, match="cannot be opened for reading"):
            Reader(written.home).open()

    as_reader_without_rights(refused)
