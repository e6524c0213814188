"""Which rollouts ended since the supervisor looked last."""

from pathlib import Path

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.service.supervisor_queries import read_ended_rollouts
from houston_shared.records import RolloutState
from houston_shared.store.event_bodies import StoredState
from tests.support.written_home import WrittenHome


def move(home: WrittenHome, rollout: str, state: RolloutState) -> None:
    home.event(EventKey(rollout), "state", StoredState(state=state, by="worker"))


def test_each_is_told_once_and_one_that_goes_on_is_not(tmp_path: Path) -> None:
    home = WrittenHome(tmp_path)
    database = home.home.database
    for name in ("before", "after", "again", "runs"):
        home.rollout(name)
    move(home, "before", "finished")
    first, mark = read_ended_rollouts(database, 0)
    assert first == ["before"]
    assert read_ended_rollouts(database, mark) == ([], mark)
    move(home, "after", "cancelled")
    move(home, "again", "failed")
    move(home, "again", "queued")
    home.step("runs", 1)
    assert read_ended_rollouts(database, mark) == (["after"], home.seq)
    home.close()
