"""The supervisor's connection stays open, sees what is committed, and is in nobody's way."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from houston_daemon.service.supervisor_queries import PersistentReader, read_resumable_rollouts
from tests.support.written_home import WrittenHome


def test_it_sees_what_was_committed_since_and_holds_no_log_back(tmp_path: Path) -> None:
    home = WrittenHome(tmp_path)
    kept = PersistentReader(home.home.database)
    for count, name in enumerate(("first", "second"), 1):
        home.rollout(name)
        with kept.reading() as reader:
            assert len(read_resumable_rollouts(reader)) == count
    with closing(sqlite3.connect(home.home.database)) as writer:
        busy, *_ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy
    kept.close()
    home.close()


def test_after_an_error_the_next_read_has_another_connection(tmp_path: Path) -> None:
    home = WrittenHome(tmp_path)
    kept = PersistentReader(home.home.database)
    with pytest.raises(sqlite3.OperationalError), kept.reading() as failed:
        failed.execute("SELECT * FROM no_such_table")
    with kept.reading() as reader:
        assert reader is not failed
        assert read_resumable_rollouts(reader) == {}
    kept.close()
    home.close()
