"""What a worker stores: once under each key, in an order that makes sense, or not at all."""

from collections.abc import Callable
from typing import Any

import pytest

from houston_shared import records, wire
from tests.support.recorder_client import Station, Worker, call, result, sample

HEAD = records.ContextHead(
    system="s", task="t", tools=(), rendered="", token_ids=None, dialect="d", tokenizer=""
)
Say = Callable[[Worker], Any]


def fork(worker: Worker, step: int, first_kept: int = 2, k: int = 1, **more: Any) -> Any:
    body = records.ForkBody(k=k, first_kept_step=first_kept, summary="so far", **more)
    return worker.say(wire.StoreFork, step=step, fork=body)


def ahead(step: int) -> records.SampleBody:
    """A correction of the failed call of a step."""
    return sample(step, role="lookahead")


TWICE: dict[str, tuple[Say, Say]] = {
    "head": (lambda w: None, lambda w: w.say(wire.StoreHead, head=HEAD)),
    "sample": (lambda w: None, lambda w: w.sample(1)),
    "summary": (
        lambda w: None,
        lambda w: w.say(
            wire.StoreSample, step=1, attempt=1, part="summary.1", sample=sample(1, role="summary")
        ),
    ),
    "intent": (lambda w: w.sample(1), lambda w: w.intent(1)),
    "result": (lambda w: (w.sample(1), w.intent(1)), lambda w: w.result(1)),
    "large result": (
        lambda w: (w.sample(1), w.intent(1)),
        lambda w: w.result(1, text="long " * 50_000),
    ),
    "observation": (
        lambda w: (w.sample(1), w.intent(1), w.result(1)),
        lambda w: w.observation(1),
    ),
    "observation of a closed step": (lambda w: (w.step(1), w.step(2)), lambda w: w.observation(1)),
    "sample of a closed step": (lambda w: (w.step(1), w.step(2)), lambda w: w.sample(1)),
    "fork": (lambda w: (w.step(1), w.step(2)), lambda w: fork(w, 3)),
}


@pytest.mark.parametrize("name", TWICE)
def test_the_same_words_again_are_answered_with_what_was_stored(
    station: Station, name: str
) -> None:
    worker = station.working()
    before, say = TWICE[name]
    before(worker)
    first = say(worker)
    events = station.query("SELECT count(*) FROM events")
    worker.active_us += 5_000_000  # a clock that went on makes no other words
    again = say(worker)
    assert isinstance(first, wire.Ack)
    assert isinstance(again, wire.Ack)
    assert again.duplicate
    if "closed step" not in name:
        assert not first.duplicate
    assert again.seq == first.seq
    assert station.query("SELECT count(*) FROM events") == events


OTHER: dict[str, tuple[Say, Say]] = {
    "sample": (lambda w: w.sample(1), lambda w: w.sample(1, thought="another")),
    "intent": (lambda w: (w.sample(1), w.intent(1)), lambda w: w.intent(1, deadline=9.0)),
    "result": (
        lambda w: (w.sample(1), w.intent(1), w.result(1)),
        lambda w: w.result(1, text="another"),
    ),
    "large result": (
        lambda w: (w.sample(1), w.intent(1), w.result(1, text="long " * 50_000)),
        lambda w: w.result(1, text="long " * 50_000 + "."),
    ),
    "observation": (lambda w: w.step(1), lambda w: w.observation(1, tail="another")),
    "head": (
        lambda w: w.say(wire.StoreHead, head=HEAD),
        lambda w: w.say(wire.StoreHead, head=records.ContextHead(**{**_fields(HEAD), "task": "u"})),
    ),
}


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


@pytest.mark.parametrize("name", OTHER)
def test_other_words_under_the_same_key_are_a_conflict(station: Station, name: str) -> None:
    worker = station.working()
    before, say = OTHER[name]
    before(worker)
    events = station.query("SELECT seq, chain FROM events")
    refused = say(worker)
    assert isinstance(refused, wire.Refused)
    assert refused.code == "SEQ_CONFLICT"
    assert station.query("SELECT seq, chain FROM events") == events


def _guided(worker: Worker, station: Station) -> None:
    station.person().guide(worker.rollout, "look left")
    worker.step(1)


WRONG: dict[str, tuple[Say, Say]] = {
    "first sample of step 2": (lambda w: None, lambda w: w.sample(2)),
    "step 0": (lambda w: None, lambda w: w.sample(0)),
    "a step beyond counting": (lambda w: None, lambda w: w.sample(2**31)),
    "attempt 2 before 1": (lambda w: None, lambda w: w.sample(1, attempt=2)),
    "attempt 3 after 1": (lambda w: w.sample(1), lambda w: w.sample(1, attempt=3)),
    "an older step taken again": (
        lambda w: (w.step(1), w.step(2)),
        lambda w: w.sample(1, attempt=2),
    ),
    "intent without a sample": (lambda w: None, lambda w: w.intent(1)),
    "intent in a closed step": (lambda w: w.step(1), lambda w: w.intent(1, index=1)),
    "a correction before its step": (
        lambda w: None,
        lambda w: w.say(wire.StoreSample, step=1, attempt=2, part="lookahead.1", sample=ahead(1)),
    ),
    "a correction under another attempt": (
        lambda w: w.sample(1),
        lambda w: w.say(wire.StoreSample, step=1, attempt=3, part="lookahead.1", sample=ahead(1)),
    ),
    "the second correction without the first": (
        lambda w: w.sample(1),
        lambda w: w.say(wire.StoreSample, step=1, attempt=2, part="lookahead.2", sample=ahead(1)),
    ),
    "a correction of a closed step": (
        lambda w: (w.sample(1), w.intent(1), w.result(1), w.observation(1)),
        lambda w: w.say(wire.StoreSample, step=1, attempt=2, part="lookahead.1", sample=ahead(1)),
    ),
    "a correction as a step of its own": (
        lambda w: w.sample(1),
        lambda w: w.say(wire.StoreSample, step=1, attempt=2, part="sample", sample=ahead(1)),
    ),
    "the end of a correction": (
        lambda w: (
            w.sample(1),
            w.say(wire.StoreSample, step=1, attempt=2, part="lookahead.1", sample=ahead(1)),
        ),
        lambda w: w.observation(1, attempt=2),
    ),
    "a call of a correction that another followed": (
        lambda w: (
            w.sample(1),
            w.say(wire.StoreSample, step=1, attempt=2, part="lookahead.1", sample=ahead(1)),
            w.say(wire.StoreSample, step=1, attempt=3, part="lookahead.2", sample=ahead(1)),
        ),
        lambda w: w.intent(1, attempt=2),
    ),
    "intent of a replaced attempt": (
        lambda w: (w.sample(1), w.sample(1, attempt=2)),
        lambda w: w.intent(1),
    ),
    "negative index": (lambda w: w.sample(1), lambda w: w.intent(1, index=-1)),
    "result without an intent": (lambda w: w.sample(1), lambda w: w.result(1)),
    "result of another call": (
        lambda w: (w.sample(1), w.intent(1)),
        lambda w: w.result(1, index=1),
    ),
    "observation without a sample": (lambda w: None, lambda w: w.observation(1)),
    "observation with a call without result": (
        lambda w: (w.sample(1), w.intent(1)),
        lambda w: w.observation(1),
    ),
    "an unknown part": (
        lambda w: None,
        lambda w: w.say(wire.StoreSample, step=1, attempt=1, part="intent.0", sample=sample(1)),
    ),
    "a summary of another role": (
        lambda w: None,
        lambda w: w.say(wire.StoreSample, step=1, attempt=1, part="summary.1", sample=sample(1)),
    ),
    "a summary for a far step": (
        lambda w: None,
        lambda w: w.say(
            wire.StoreSample, step=5, attempt=1, part="summary.1", sample=sample(1, role="summary")
        ),
    ),
    "fork in the middle of a step": (lambda w: (w.step(1), w.sample(2)), lambda w: fork(w, 2, 1)),
    "fork that keeps steps to come": (lambda w: w.step(1), lambda w: fork(w, 2, 3)),
    "fork of no steps": (lambda w: w.step(1), lambda w: fork(w, 2, 1, k=0)),
    "fork with guidance nobody gave": (
        lambda w: w.step(1),
        lambda w: fork(w, 2, 1, guidance=("nobody",)),
    ),
    "a score that is no number": (
        lambda w: (w.sample(1), w.intent(1)),
        lambda w: w.result(1, kind="eval", fields={"overall_score": "100"}),
    ),
    "a score without end": (
        lambda w: (w.sample(1), w.intent(1)),
        lambda w: w.result(1, kind="eval", fields={"overall_score": float("nan")}),
    ),
    "the same file twice": (
        lambda w: (w.sample(1),),
        lambda w: w.observation(
            1, files=(records.FileChange(path="a", kind="added", added=1, removed=0),) * 2
        ),
    ),
    "a number that no column holds": (
        lambda w: (w.sample(1),),
        lambda w: w.observation(
            1, spans=(records.TerminalSpan(host="h", terminal="t", start=0, end=2**63),)
        ),
    ),
    "a move to queued": (lambda w: None, lambda w: w.say(wire.StoreState, state="queued")),
    "a move that is none": (
        lambda w: None,
        lambda w: w.say(wire.Heartbeat, activity="x") and w.sample(7),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_follow_is_refused_and_leaves_no_trace(station: Station, name: str) -> None:
    worker = station.working()
    before, say = WRONG[name]
    before(worker)
    tables = (
        "events",
        "steps",
        "samples",
        "forks",
        "file_changes",
        "terminal_spans",
        "evaluations",
    )
    counts = [station.query(f"SELECT count(*) FROM {table}") for table in tables]
    refused = say(worker)
    assert isinstance(refused, wire.Refused), refused
    assert refused.code == "INVALID"
    assert [station.query(f"SELECT count(*) FROM {table}") for table in tables] == counts
    assert isinstance(worker.say(wire.Heartbeat), wire.Ack)


def test_a_purified_attempt_is_refused_while_guidance_waits(station: Station) -> None:
    """Then the raw attempt is closed, and carries it."""
    worker = station.working()
    worker.sample(1)
    worker.say(wire.StoreSample, step=1, attempt=2, part="lookahead.1", sample=ahead(1))
    story = {records.PURIFICATION_KEY: {"mode": "deep", "from_attempt": 2}}
    purified = sample(1, parameters=story)
    station.person().guide(worker.rollout, "look left")
    refused = worker.say(wire.StoreSample, step=1, attempt=3, sample=purified)
    assert isinstance(refused, wire.Refused) and refused.code == "GUIDED"
    closed = worker.observation(1)
    assert [one.text for one in closed.guidance] == ["look left"]
    rows = station.query("SELECT attempt, current FROM steps ORDER BY attempt")
    assert rows == [(1, 1), (2, 0)]


def test_scores_of_a_correction_count_once_it_is_taken_over(station: Station) -> None:
    worker = station.working()
    worker.sample(1)
    worker.say(wire.StoreSample, step=1, attempt=2, part="lookahead.1", sample=ahead(1))
    scored = records.ToolResult(
        call=call(1), kind="eval", success=True, text="", fields={"overall_score": 50.0}
    )
    count = "SELECT count(*) FROM evaluations"
    for attempt, evaluations in ((2, 0), (3, 1)):
        if attempt == 3:
            worker.sample(1, attempt=3)
        worker.intent(1, attempt=attempt)
        told = worker.say(wire.StoreResult, step=1, attempt=attempt, index=0, result=scored)
        assert isinstance(told, wire.Ack)
        assert station.query(count) == [(evaluations,)]


def test_a_refused_message_does_not_spoil_those_beside_it(station: Station) -> None:
    """All are sent before the first answer, so that they share a transaction."""
    worker = station.working()
    first = worker.send(worker.message(wire.StoreSample, step=1, attempt=1, sample=sample(1)))
    wrong = worker.send(worker.message(wire.StoreSample, step=9, attempt=1, sample=sample(9)))
    intent = records.CallIntent(call=records.ToolCall(id="1.0", name="ls", arguments={}))
    second = worker.send(
        worker.message(wire.StoreIntent, step=1, attempt=1, index=0, intent=intent)
    )
    assert isinstance(worker.receive(first), wire.Ack)
    assert isinstance(worker.receive(wrong), wire.Refused)
    assert isinstance(worker.receive(second), wire.Ack)


def test_a_large_body_keeps_its_place_in_the_order(station: Station) -> None:
    """What follows a body that is still on its way to disk waits for it."""
    worker = station.working()
    large = sample(1, thought="long " * 400_000)
    intent = records.CallIntent(call=records.ToolCall(id="1.0", name="ls", arguments={}))
    first = worker.send(worker.message(wire.StoreSample, step=1, attempt=1, sample=large))
    second = worker.send(
        worker.message(wire.StoreIntent, step=1, attempt=1, index=0, intent=intent)
    )
    one, two = worker.receive(first), worker.receive(second)
    assert isinstance(one, wire.Ack)
    assert isinstance(two, wire.Ack)
    assert one.seq < two.seq
    ((body, blob),) = station.query("SELECT body, blob FROM events WHERE kind = 'sample'")
    assert body is None
    assert (station.home.blobs / blob[:2] / f"{blob}.zst").stat().st_size < 100_000


def test_a_closed_step_without_guidance_may_be_taken_again(station: Station) -> None:
    worker = station.working()
    worker.sample(1)
    worker.intent(1)
    worker.result(1, success=False)
    worker.observation(1)
    assert station.query("SELECT steps, errors FROM rollouts") == [(1, 1)]
    assert isinstance(worker.sample(1, attempt=2), wire.Ack)
    assert station.query("SELECT steps, errors FROM rollouts") == [(0, 0)]
    worker.intent(1, attempt=2)
    worker.result(1, attempt=2)
    assert isinstance(worker.observation(1, attempt=2), wire.Ack)
    assert station.query("SELECT attempt, current FROM steps ORDER BY attempt") == [(1, 0), (2, 1)]
    assert station.query("SELECT steps, errors FROM rollouts") == [(1, 0)]


def test_a_guided_step_is_never_taken_again(station: Station) -> None:
    worker = station.working()
    _guided(worker, station)
    refused = worker.sample(1, attempt=2)
    assert isinstance(refused, wire.Refused)
    assert "guidance" in refused.reason


def test_active_time_only_grows(station: Station) -> None:
    worker = station.working()
    worker.active_us = 50_000_000
    worker.step(1)
    worker.active_us = 10_000_000
    worker.step(2)
    assert station.query("SELECT active_us FROM rollouts") == [(50_000_000,)]
    worker.active_us = 90_000_000
    worker.say(wire.Heartbeat, activity="sleep")
    assert station.query("SELECT active_us, activity FROM rollouts") == [(90_000_000, "sleep")]
    station.restart()
    assert station.worker(worker.rollout).welcome.active_us == 90_000_000  # type: ignore[attr-defined]


def test_many_workers_that_do_not_wait_for_acks_are_stored_in_their_order(station: Station) -> None:
    """Enough at once that commits overlap with receiving: bodies large and small, one wrong."""
    workers = [station.worker(rollout) for rollout in station.person().start(12)]
    sent: dict[Worker, list[bytes]] = {}
    for worker in workers:
        key: dict[str, Any] = {"attempt": 1}
        sent[worker] = []
        for step in range(1, 9):
            key["step"] = step
            text = "long " * (30_000 if step == 3 else 10)
            intent = records.CallIntent(call=call(step))
            seen = records.ObservationBody(tail=f"[{step}]")
            sent[worker] += [
                worker.send(worker.message(wire.StoreSample, **key, sample=sample(step))),
                worker.send(worker.message(wire.StoreIntent, **key, index=0, intent=intent)),
                worker.send(worker.message(wire.StoreIntent, **key, index=-1, intent=intent)),
                worker.send(
                    worker.message(wire.StoreResult, **key, index=0, result=result(step, text=text))
                ),
                worker.send(worker.message(wire.StoreObservation, **key, observation=seen)),
            ]
    for worker in workers:
        newest = 0
        for place, request in enumerate(sent[worker]):
            found, reply = worker.receive_any()
            assert found == request
            if place % 5 == 2:
                assert isinstance(reply, wire.Refused)
                continue
            assert isinstance(reply, wire.Ack), reply
            assert reply.seq > newest
            newest = reply.seq
        stored = station.query(
            "SELECT seq, part FROM events WHERE rollout = ? AND part IS NOT NULL ORDER BY seq",
            worker.rollout,
        )
        assert [part for _, part in stored] == ["sample", "intent.0", "call.0", "observation"] * 8
        assert stored[-1][0] == newest
