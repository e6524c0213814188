"""Waiting for rollouts: what is looked at, when it is over, and who waits for a person."""

from pathlib import Path

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.service import rollout_end_wait
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutState
from houston_shared.store.event_bodies import StoredState
from houston_shared.store.rollout_queries import AT_REST_ACTIVITY
from tests.support.written_home import WrittenHome


@pytest.fixture
def home(tmp_path: Path) -> WrittenHome:
    made = WrittenHome(tmp_path)
    for name in ("one", "two"):
        made.rollout(name)
    return made


def move(home: WrittenHome, rollout: str, state: RolloutState, by: str = "worker") -> None:
    home.event(EventKey(rollout), "state", StoredState(state=state, by=by, reason="why"))


def test_it_is_over_when_the_last_has_ended_however_it_did(home: WrittenHome) -> None:
    seen: list[list[str]] = []

    def look(rows: rollout_end_wait.Rows) -> None:
        left = rollout_end_wait.unfinished(rows.values())
        seen.append(sorted(row.id for row in left))
        move(home, left[0].id, "finished" if len(left) == 2 else "failed")

    rows = rollout_end_wait.wait_until_ended(home.home, ["two", "one"], look)
    assert seen == [["one", "two"], seen[1]]
    assert len(seen[1]) == 1
    assert sorted(row.state for row in rows.values()) == ["failed", "finished"]


def test_whoever_looks_ends_it_by_raising(home: WrittenHome) -> None:
    def look(rows: rollout_end_wait.Rows) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rollout_end_wait.wait_until_ended(home.home, ["one"], look)


def test_one_that_is_gone_is_not_waited_for(home: WrittenHome) -> None:
    with pytest.raises(HoustonError, match="Rollout three is not in the home any more"):
        rollout_end_wait.wait_until_ended(home.home, ["one", "three"], lambda rows: None)


@pytest.mark.parametrize(
    ("by", "activity", "waits"),
    [
        ("person:ada", AT_REST_ACTIVITY, True),
        ("restore", AT_REST_ACTIVITY, True),
        ("person:ada", "shell", False),  # a step is under way yet
        ("engine", AT_REST_ACTIVITY, False),
        ("host-away", AT_REST_ACTIVITY, False),
        ("disk", AT_REST_ACTIVITY, False),
    ],
)
def test_who_waits_for_a_person(home: WrittenHome, by: str, activity: str, waits: bool) -> None:
    move(home, "one", "paused", by)
    home.connection.execute("UPDATE rollouts SET activity = ? WHERE id = 'one'", (activity,))
    found: list[str] = []

    def look(rows: rollout_end_wait.Rows) -> None:
        found.extend(row.id for row in rollout_end_wait.waiting_for_a_person(rows.values()))
        for name in rows:
            move(home, name, "cancelled")

    rollout_end_wait.wait_until_ended(home.home, ["one", "two"], look)
    assert found == (["one"] if waits else [])
