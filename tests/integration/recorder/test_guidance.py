"""A word from a person: in order, unchanged, heard at one step, exactly once."""

from typing import Any

import pytest

from houston_shared import records, wire
from houston_shared.errors import ExitCode
from tests.support.recorder_client import Station


def texts(ack: wire.Ack) -> list[str]:
    return [one.text for one in ack.guidance]


def test_guidance_joins_the_next_observation_in_order_and_once(station: Station) -> None:
    worker, person = station.working(), station.person()
    words = [f"word {n} — «ü» \x00 </real_user>" for n in range(5)]
    for text in words:
        assert isinstance(person.guide(worker.rollout, text), wire.RequestStored)
    ack = worker.step(1)
    assert texts(ack) == words
    assert ack.control.waiting == wire.QueuedGuidance()
    assert texts(worker.step(2)) == []
    assert texts(worker.observation(1)) == words  # asked again after a lost answer
    rows = station.query("SELECT state, delivered_step FROM guidance")
    assert rows == [("delivered", 1)] * 5
    assert station.query("SELECT guided FROM steps ORDER BY step") == [(5,), (0,)]
    assert len(station.query("SELECT 1 FROM events WHERE kind = 'delivery'")) == 1


def test_guidance_said_while_a_step_runs_belongs_to_that_step(station: Station) -> None:
    worker, person = station.working(), station.person()
    worker.sample(1)
    worker.intent(1)
    person.guide(worker.rollout, "now")
    worker.result(1)
    assert texts(worker.observation(1)) == ["now"]


def test_guidance_waits_for_a_rollout_that_is_not_running(station: Station) -> None:
    person = station.person()
    (rollout,) = person.start()
    person.guide(rollout, "before you begin")
    worker = station.worker(rollout)
    assert worker.welcome.control.waiting.count == 1  # type: ignore[attr-defined]
    assert texts(worker.step(1)) == ["before you begin"]


def test_edit_and_withdraw_until_it_is_heard(station: Station) -> None:
    worker, person = station.working(), station.person()
    for id in ("a", "b", "c"):
        person.guide(worker.rollout, f"first {id}", id=id)
    edited = person.ask(wire.EditGuidance(id="a", revision=1, text="second a"))
    assert edited.guidance.text == "second a"
    assert edited.guidance.revision == 2
    assert person.ask(wire.EditGuidance(id="a", revision=1, text="second a")).guidance.revision == 2
    stale = person.ask(wire.EditGuidance(id="a", revision=1, text="third a"))
    assert isinstance(stale, wire.Denied)
    assert person.ask(wire.WithdrawGuidance(id="b")).guidance.state == "withdrawn"
    assert person.ask(wire.WithdrawGuidance(id="b")).guidance.state == "withdrawn"
    assert texts(worker.step(1)) == ["second a", "first c"]
    for message in (
        wire.EditGuidance(id="a", revision=2, text="too late"),
        wire.WithdrawGuidance(id="a"),
    ):
        denied = person.ask(message)
        assert isinstance(denied, wire.Denied)
        assert "delivered at step 1" in denied.cause
    assert texts(worker.observation(1)) == ["second a", "first c"]


def test_the_same_guidance_sent_twice_is_one(station: Station) -> None:
    worker, person = station.working(), station.person()
    first = person.guide(worker.rollout, "once", id="x")
    again = person.guide(worker.rollout, "once", id="x")
    assert first == again
    assert isinstance(person.guide(worker.rollout, "something else", id="x"), wire.Denied)
    assert texts(worker.step(1)) == ["once"]


URGENCY: dict[str, tuple[list[records.GuidanceMode], float, bool]] = {
    "nothing, a call": ([], 0.0, True),
    "next, a sleep": (["next"], 99.0, True),
    "wake, a call": (["next", "wake"], 0.0, True),
    "wake, a sleep": (["wake", "next"], 99.0, False),
    "interrupt, a call": (["next", "interrupt", "wake"], 0.0, False),
    "interrupt, a sleep": (["interrupt"], 99.0, False),
}


@pytest.mark.parametrize("name", URGENCY)
def test_an_intent_hears_whether_to_act(station: Station, name: str) -> None:
    modes, deadline, act = URGENCY[name]
    worker, person = station.working(), station.person()
    worker.sample(1)
    for mode in modes:
        person.guide(worker.rollout, "listen", mode=mode)
    ack = worker.intent(1, deadline=deadline)
    assert ack.act is act
    assert ack.control.waiting.count == len(modes)
    most = max(modes, key=["next", "wake", "interrupt"].index, default=None)
    assert ack.control.waiting.urgency == most


def test_a_worker_is_told_at_once(station: Station) -> None:
    worker, person = station.working(), station.person()
    person.guide(worker.rollout, "hello", mode="wake")
    request, push = worker.receive_any()
    assert request == wire.PUSH_REQUEST_ID
    assert push.control.waiting == wire.QueuedGuidance(1, "wake")
    person.ask(wire.Steer(rollout=worker.rollout, action="pause"))
    assert worker.receive_any()[1].control.pause
    assert worker.say(wire.Heartbeat).control.pause
    assert worker.pushes[-1].control == worker.say(wire.Heartbeat).control


DENIED: dict[str, Any] = {
    "unknown rollout": wire.Guide(id="i", rollout="probe-none", text="x"),
    "empty text": wire.Guide(id="i", rollout="", text=" \n"),
    "long text": wire.Guide(id="i", rollout="", text="x" * 40_000),
    "no id": wire.Guide(id="", rollout="", text="x"),
    "edit of nothing": wire.EditGuidance(id="none", revision=1, text="x"),
    "withdraw of nothing": wire.WithdrawGuidance(id="none"),
}


@pytest.mark.parametrize("name", DENIED)
def test_what_cannot_be_done_is_denied_with_a_sentence(station: Station, name: str) -> None:
    denied = station.person().ask(DENIED[name])
    assert isinstance(denied, wire.Denied)
    assert denied.cause.endswith(".")
    assert denied.effect.endswith(".")
    assert denied.code in (ExitCode.USAGE, ExitCode.NOT_FOUND)
    assert station.query("SELECT count(*) FROM guidance") == [(0,)]


def test_nobody_speaks_to_a_rollout_that_has_ended(station: Station) -> None:
    worker = station.working()
    worker.say(wire.StoreState, state="finished")
    denied = station.person().guide(worker.rollout, "too late")
    assert isinstance(denied, wire.Denied)
    assert "finished" in denied.cause


def test_bookmarks_notes_and_presence(station: Station) -> None:
    worker, person = station.working(), station.person()
    worker.step(1)
    for note in ("first thought", "second thought"):
        person.ask(wire.BookmarkStep(rollout=worker.rollout, step=1, note=note))
    assert station.query("SELECT step FROM bookmarks") == [(1,)]
    assert station.query("SELECT count(*) FROM notes") == [(2,)]
    events = station.query("SELECT count(*) FROM events")
    person.ask(wire.ReportPresence(rollout=worker.rollout, step=1))
    assert station.query("SELECT rollout, step FROM annotators") == [(worker.rollout, 1)]
    assert station.query("SELECT count(*) FROM events") == events
    person.ask(wire.BookmarkStep(rollout=worker.rollout, step=1, remove=True))
    assert station.query("SELECT count(*) FROM bookmarks") == [(0,)]
    assert isinstance(person.ask(wire.BookmarkStep(rollout=worker.rollout, step=9)), wire.Denied)
