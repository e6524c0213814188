"""Waiting for rollouts: what is looked at, when it is over, and who waits for a person."""

from pathlib import Path

import msgspec
import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.service import rollout_end_wait
from houston_daemon.suites import suite_run
from houston_shared.errors import HoustonError
from houston_shared.home_lock import HomeLock, HomeOwner
from houston_shared.records import RolloutState
from houston_shared.store import outcome_queries
from houston_shared.store.event_bodies import StoredState
from houston_shared.store.rollout_queries import AT_REST_ACTIVITY
from houston_shared.store.store_reader import Reader
from houston_shared.worker_waits import WorkerWaits, worker_waits_file
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
    with pytest.raises(HoustonError, match="Rollout three is no longer in the home"):
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


WORKER_WAIT = "waits for a worker: paused rollouts hold 3 of 3 (`max_rollouts`)"
HELD = WorkerWaits(WORKER_WAIT)
ENGINE = "script:x"
WAITING: dict[str, tuple[dict[str, RolloutState], WorkerWaits, str]] = {
    "nothing does": ({"one": "running", "two": "finished"}, HELD, ""),
    "a pause": (
        {"one": "running", "two": "paused"},
        WorkerWaits(),
        "1 rollout paused, two by engine: why",
    ),
    "a queue that moves": ({"one": "queued"}, WorkerWaits(), ""),
    "workers that paused ones hold": (
        {"one": "queued"},
        HELD,
        f"1 rollout queued: {WORKER_WAIT}",
    ),
    "both": (
        {"one": "paused", "two": "queued"},
        HELD,
        f"1 rollout paused, one by engine: why; 1 rollout queued: {WORKER_WAIT}",
    ),
    "its engine, before workers": (
        {"one": "queued", "two": "queued"},
        WorkerWaits(WORKER_WAIT, {ENGINE: "starting"}),
        f"2 rollouts queued: waits for engine {ENGINE}: starting",
    ),
    "another engine": ({"one": "queued"}, WorkerWaits("", {"far": "down: refused"}), ""),
}


@pytest.mark.parametrize("case", WAITING)
def test_what_keeps_rollouts_from_ending_is_said(home: WrittenHome, case: str) -> None:
    states, waits, sentence = WAITING[case]
    for name, state in states.items():
        move(home, name, state, "engine")
    worker_waits_file(home.home).write_bytes(msgspec.json.encode(waits))
    lock = HomeLock(home.home)
    assert lock.take(HomeOwner(pid=0, since="")) is None
    with Reader(home.home) as reader:
        rows = reader.run(outcome_queries.find_rollouts(["one", "two"])).values()
    assert rollout_end_wait.waiting_sentence(home.home, rows) == sentence
    lock.release()
    without = rollout_end_wait.waiting_sentence(home.home, rows)
    assert "queued" not in without, "no daemon, nobody to wait for"


def test_a_suite_that_waits_says_for_what_beside_its_count(home: WrittenHome) -> None:
    move(home, "one", "paused", "engine")
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        for name in ("one", "two"):
            move(home, name, "cancelled")

    suite_run._wait(home.home, ["one", "two"], tell)
    assert told == ["0 of 2 ended; 1 rollout paused, one by engine: why"]
