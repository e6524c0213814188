"""A rollout from its start to its end, as the database, its worker and its people see it."""

from houston_shared import wire
from tests.support.recorder_client import Station


def test_a_rollout_goes_from_queued_to_finished(station: Station) -> None:
    person = station.person()
    (rollout,) = person.start()
    assert rollout.startswith("probe-")
    assert station.recorder.runnable() == [rollout]
    worker = station.worker(rollout)
    assert station.recorder.runnable() == []
    assert worker.welcome.next_step == 1
    assert worker.welcome.head is None
    for step in (1, 2, 3):
        assert isinstance(worker.step(step), wire.Ack)
    assert isinstance(worker.say(wire.StoreState, state="finished", reason="done"), wire.Ack)
    assert station.query("SELECT state, steps, reason FROM rollouts") == [("finished", 3, "done")]
    refused = worker.sample(4)
    assert isinstance(refused, wire.Refused)
    assert refused.code == "ENDED"
