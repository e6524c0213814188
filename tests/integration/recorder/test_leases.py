"""One worker acts for a rollout: the one with the newest lease."""

import os
from typing import Any

import pytest

from houston_daemon.recorder import rollout_assignment
from houston_daemon.recorder.recorder_store import Store
from houston_shared import wire
from houston_shared.errors import HoustonError
from tests.support.recorder_client import Station, Worker, sample, until


def test_a_successor_ends_its_predecessor(station: Station) -> None:
    old = station.working()
    old.step(1)
    new = station.worker(old.rollout)
    for said in (old.sample(2), old.hello(), old.say(wire.Heartbeat), old.observation(1)):
        assert isinstance(said, wire.Refused)
        assert said.code == "STALE_LEASE"
    assert isinstance(new.step(2), wire.Ack)


@pytest.mark.parametrize("lease", [0, 2, -1, 2**63, 2**64 - 1])
def test_only_the_lease_that_was_given_counts(station: Station, lease: int) -> None:
    worker = station.working()
    forged = Worker(station.home, worker.rollout, lease)
    said = forged.sample(1)
    forged.close()
    assert isinstance(said, wire.Refused)
    assert said.code == "STALE_LEASE"


def test_a_lease_outlives_the_daemon_and_grows(station: Station) -> None:
    worker = station.working()
    rollout, lease = worker.rollout, worker.lease
    worker.step(1)
    station.restart()
    assert station.recorder.runnable() == [rollout]
    new = station.worker(rollout)
    assert new.lease == lease + 1
    assert isinstance(new.step(2), wire.Ack)


def _hello(rollout: str, **fields: Any) -> wire.Hello:
    return wire.Hello(**{"rollout": rollout, "lease": 1, "pid": os.getpid(), **fields})


def test_refusals_name_their_reason(station: Station) -> None:
    worker = station.working()
    cases = {
        "PROTOCOL": _hello(worker.rollout, protocol=99),
        "UNKNOWN": _hello("probe-none"),
        "STALE_LEASE": wire.StoreSample(
            rollout=worker.rollout, lease=7, step=1, attempt=1, sample=sample(1)
        ),
    }
    for code, message in cases.items():
        said = worker.ask(message)
        assert isinstance(said, wire.Refused)
        assert said.code == code


def test_a_failed_worker_fails_its_rollout_and_an_old_one_does_not(station: Station) -> None:
    worker = station.working()
    new = station.worker(worker.rollout)
    station.recorder.worker_ended(worker.rollout, worker.lease, "it was replaced")
    assert station.query("SELECT state FROM rollouts") == [("running",)]
    station.recorder.worker_ended(worker.rollout, new.lease, "it crashed three times")
    assert station.query("SELECT state, reason FROM rollouts") == [
        ("failed", "it crashed three times")
    ]


def test_last_words_that_come_after_the_end_are_kept_and_bring_nobody_back(
    station: Station,
) -> None:
    worker = station.working()
    worker.sample(1)
    station.recorder.worker_ended(worker.rollout, worker.lease, "")
    for said in (worker.intent(1), worker.say(wire.Heartbeat, activity="late")):
        assert isinstance(said, wire.Ack), said
    assert station.recorder.runnable() == [worker.rollout]
    new = station.worker(worker.rollout)
    assert isinstance(worker.result(1), wire.Refused)
    assert isinstance(new.result(1), wire.Ack)


def test_an_end_that_was_undone_keeps_its_active_time(station: Station) -> None:
    worker = station.working()
    worker.active_us = 7_000_000
    worker.say(wire.Heartbeat)
    with pytest.raises(HoustonError, match="spoiled"):
        station.recorder._call(lambda store: _ends_and_spoils(store, worker))
    station.recorder.worker_ended(worker.rollout, worker.lease, "")
    assert station.query("SELECT active_us FROM rollouts") == [(7_000_000,)]


def test_a_step_that_its_workers_end_closes_has_the_time_of_the_last_heartbeat(
    station: Station,
) -> None:
    worker = station.working()
    worker.sample(1)
    worker.active_us = 7_000_000
    worker.say(wire.Heartbeat)
    station.person().ask(wire.Steer(rollout=worker.rollout, action="cancel"))
    station.recorder.worker_ended(worker.rollout, worker.lease, "")
    assert station.query("SELECT active_us FROM steps") == [(7_000_000,)]


def _ends_and_spoils(store: Store, worker: Worker) -> None:
    rollout_assignment.handle_worker_end(store, worker.rollout, worker.lease, "")
    raise HoustonError("It was spoiled.")


def test_what_cannot_run_is_not_assigned(station: Station) -> None:
    person = station.person()
    (rollout,) = person.start()
    person.ask(wire.Steer(rollout=rollout, action="cancel"))
    for name in (rollout, "probe-none"):
        with pytest.raises(HoustonError, match="cannot be assigned"):
            station.recorder.assign(name)


# --- heartbeats of several rollouts in one message ------------------------------------------------


def _beat_together(speaker: Worker, *workers: Worker, **fields: Any) -> list[Any]:
    """What each of these workers' heartbeats was answered, sent by one of them."""
    beats = tuple(worker.message(wire.Heartbeat, **fields) for worker in workers)
    answer = speaker.ask(wire.Heartbeats(beats=beats))
    assert isinstance(answer, wire.HeartbeatReplies), answer
    return list(answer.replies)


def test_heartbeats_that_come_together_are_answered_each_as_if_alone(station: Station) -> None:
    first, second, replaced = station.working(), station.working(), station.working()
    station.worker(replaced.rollout)
    unknown = Worker(station.home, "probe-none", 1)
    station.person().ask(wire.Steer(rollout=second.rollout, action="pause"))
    answers = _beat_together(first, first, replaced, second, unknown)
    unknown.close()
    assert not answers[0].control.pause
    assert answers[1].code == "STALE_LEASE"
    assert answers[2].control.pause
    assert answers[3].code == "UNKNOWN"


def test_heartbeats_that_come_together_keep_activity_and_active_time(station: Station) -> None:
    first, second = station.working(), station.working()
    first.active_us, second.active_us = 7_000_000, 40_000_000
    _beat_together(first, first, second, activity="sampling")
    station.recorder.worker_ended(first.rollout, first.lease, "")
    assert station.query("SELECT activity, active_us FROM rollouts ORDER BY spec_seq") == [
        ("sampling", 7_000_000),
        ("sampling", 40_000_000),
    ]


def test_a_heartbeat_with_others_ends_a_silence(station: Station) -> None:
    first, second = station.working(), station.working()

    def both_are_silent() -> bool:
        return min(each.seconds for each in station.recorder.silences().values()) > 0.5

    assert until(both_are_silent)
    _beat_together(first, first, second)
    assert max(each.seconds for each in station.recorder.silences().values()) < 0.5


def test_who_beats_for_others_hears_the_pushes_about_them(station: Station) -> None:
    first, second = station.working(), station.working()
    _beat_together(first, first, second)
    station.person().guide(second.rollout, "Look again.")
    assert until(lambda: _beat_together(first, first, second)[1].control.waiting.count == 1)
    assert [push.rollout for push in first.pushes] == [second.rollout]
