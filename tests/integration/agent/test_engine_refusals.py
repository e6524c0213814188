"""What an engine refuses pauses its rollout and is asked again; what is too long is forked.

Real worker processes against a real endpoint that refuses from some request on, until it is mended.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from houston_daemon.agent import rollout_worker, sample_requests
from houston_daemon.recorder.recorder_thread import Recorder
from houston_shared import wire
from houston_shared.config import Configuration
from houston_shared.records import AWAY_ACTIVITY
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader
from tests.integration.agent.endpoint import Answer, Endpoint, call, error, says
from tests.integration.agent.rig import Rig
from tests.support.tiers import sampled

STEPS = 4
TASK = f"[budget]\nsteps = {STEPS}\nminimum_steps = {STEPS}\nevaluations = 0\n"


def noops(body: dict[str, Any]) -> Answer:
    return call(text="x")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint(noops)
    yield made
    made.close()


def asking_often(words: list[str]) -> int:
    """A worker that asks again at once."""
    sample_requests.ENGINE_REFUSED_WAITS = (0.05,)
    return rollout_worker.main(words)


def refuse(endpoint: Endpoint, answer: Answer, after: int = 2) -> None:
    """Refuse all requests but the first ones."""
    endpoint.decide = lambda body: noops(body) if endpoint.accepted < after else answer


def paused(rig: Rig, rollout: str, by: str = "engine") -> str:
    """Wait until the rollout is paused by so and so, and its worker says why; the reason."""
    query = "SELECT reason, activity FROM rollouts WHERE id=? AND state='paused' AND paused_by=?"
    found = rig.until(lambda: rig.query(query, rollout, by), why=f"paused by {by}")
    if by == "engine":
        rig.until(
            lambda: rig.query(query, rollout, by)[0][1].startswith(AWAY_ACTIVITY),
            why="its worker says so",
        )
    return str(found[0][0])


def finished(rig: Rig, rollout: str, process: Any) -> None:
    """Every step once, whatever came between."""
    process.join(120)
    assert process.exitcode == 0
    assert rig.state(rollout)[0] == "finished", rig.state(rollout)
    steps = rig.steps(rollout)
    assert [one.step for one in steps] == list(range(1, STEPS + 1))
    assert all(one.observation is not None for one in steps)


REFUSALS: dict[str, tuple[Answer, str]] = {
    "401, the key is wrong": (error(401, "Incorrect API key provided"), "houston daemon restart"),
    "402, the account is empty": (error(402, "Insufficient Balance"), "402: Insufficient Balance"),
    "403, not allowed": (error(403, "Country not supported"), "403: Country not supported"),
    "404, the model is gone": (error(404, "The model does not exist"), "404: The model"),
    "400, a parameter": (error(400, "Unsupported value: 'top_k'", param="top_k"), "'top_k'"),
    "422, of FastAPI": (
        (422, {"detail": [{"loc": ["body", "x"], "msg": "Extra inputs are not permitted"}]}),
        "Extra inputs are not permitted",
    ),
    "429, the quota is spent": (
        error(429, "You exceeded your current quota", code="insufficient_quota"),
        "exceeded your current quota",
    ),
    "200 with the error inside": ((200, error(401, "no", code=401)[1]), "401: no"),
}


@pytest.mark.parametrize("case", sampled(REFUSALS, 2))
def test_a_refusal_pauses_and_a_person_resumes(rig: Rig, endpoint: Endpoint, case: str) -> None:
    answer, why = REFUSALS[case]
    endpoint.decide = lambda body: noops(body) if len(endpoint.asked) < 3 else answer
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    process = rig.work(rollout)
    reason = paused(rig, rollout)
    assert reason.startswith("Engine engine refused the request with ")
    assert why in reason and f"houston rollout resume {rollout}" in reason
    endpoint.decide = noops
    rig.ask(wire.Steer(rollout=rollout, action="resume"))
    finished(rig, rollout, process)


@pytest.mark.slow
def test_resumed_too_early_it_is_paused_again(rig: Rig, endpoint: Endpoint) -> None:
    refuse(endpoint, error(401, "Incorrect API key"))
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    process = rig.work(rollout)
    paused(rig, rollout)
    endpoint.refused.clear()
    rig.ask(wire.Steer(rollout=rollout, action="resume"))
    assert endpoint.refused.wait(60)
    paused(rig, rollout)
    endpoint.decide = noops
    rig.ask(wire.Steer(rollout=rollout, action="resume"))
    finished(rig, rollout, process)


def test_it_goes_on_by_itself_once_it_is_mended(rig: Rig, endpoint: Endpoint) -> None:
    refuse(endpoint, error(402, "Insufficient Balance"))
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    process = rig.start(asking_often, rollout)
    paused(rig, rollout)
    endpoint.decide = noops
    finished(rig, rollout, process)
    body = "SELECT count(*) FROM events WHERE rollout=? AND kind='state'"
    # queued → running, paused, running, finished: a try that is refused again says nothing more.
    assert rig.query(body, rollout) == [(4,)]


def test_a_persons_pause_outlasts_the_engines(rig: Rig, endpoint: Endpoint) -> None:
    refuse(endpoint, error(403, "no"))
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    process = rig.start(asking_often, rollout)
    paused(rig, rollout)
    rig.ask(wire.Steer(rollout=rollout, action="pause", reason="lunch"))
    before = endpoint.accepted
    endpoint.decide = noops
    rig.until(lambda: endpoint.accepted > before, why="it is accepted again")
    row = "SELECT state, paused_by LIKE 'person:%', activity FROM rollouts WHERE id=?"
    rig.until(lambda: rig.query(row, rollout) == [("paused", 1, "paused")], why="it stands")
    assert len(rig.steps(rollout)) == 2, "nothing was done meanwhile"
    rig.ask(wire.Steer(rollout=rollout, action="resume"))
    finished(rig, rollout, process)


@pytest.mark.parametrize("how", sampled(["the daemon started again", "killed"], 1))
def test_another_worker_asks_again(rig: Rig, endpoint: Endpoint, how: str) -> None:
    refuse(endpoint, error(401, "Incorrect API key"))
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    process = rig.work(rollout)
    paused(rig, rollout)
    if how == "killed":
        rig.kill(process, rollout)
    else:
        process.kill()
        process.join(60)
        rig.recorder.stop()
        rig.recorder = Recorder(rig.home, Configuration(), rig.told.append)
        rig.recorder.start()
    assert rig.state(rollout)[0] == "queued"
    endpoint.decide = noops
    finished(rig, rollout, rig.work(rollout))


OVERFLOWS: dict[str, Answer] = {
    "OpenAI": error(
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in"
        " 9001 tokens. Please reduce the length of the messages.",
        code="context_length_exceeded",
    ),
    "a code and no words": error(400, "bad request", code="context_length_exceeded"),
    "a proxy's 413": (413, {"detail": "Request Entity Too Large"}),
    "within the answer": (200, {"error": {"message": "prompt is too long: 9001 > 8192"}}),
}
LONG_TASK = "[budget]\nsteps = 12\nminimum_steps = 12\nevaluations = 0\n"


@pytest.mark.parametrize("case", sampled(OVERFLOWS, 1))
def test_what_is_too_long_is_forked(rig: Rig, endpoint: Endpoint, case: str) -> None:
    """Guidance of the compressed part stays verbatim, and nothing is paused."""

    def decide(body: dict[str, Any]) -> Answer:
        if sum(len(str(one["content"])) for one in body["messages"]) > 16_000:
            return OVERFLOWS[case]
        return call(text="word " * 500) if "tools" in body else says("Nothing of use.")

    endpoint.decide = decide
    rollout = rig.rollout(settings=endpoint.settings, task=LONG_TASK)
    rig.ask(wire.Guide(id="g1", rollout=rollout, text="Keep notes."))
    rig.run(rollout)
    assert rig.state(rollout)[0] == "finished", rig.state(rollout)
    assert rig.query("SELECT count(*) > 0 FROM forks WHERE rollout=?", rollout) == [(1,)]
    paused_ever = "SELECT count(*) FROM events WHERE rollout=? AND kind='state'"
    assert rig.query(paused_ever, rollout) == [(2,)]
    sent = [one for one in endpoint.asked if "tools" in one][-1]
    told = "".join(str(one["content"]) for one in sent["messages"])
    assert told.count("<real_user>Keep notes.</real_user>") == 1


@pytest.mark.slow
def test_what_cannot_be_made_shorter_pauses(rig: Rig, endpoint: Endpoint) -> None:
    endpoint.decide = lambda body: OVERFLOWS["OpenAI"]
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    process = rig.work(rollout)
    assert "maximum context length is 8192" in paused(rig, rollout)
    endpoint.decide = noops
    rig.ask(wire.Steer(rollout=rollout, action="resume"))
    finished(rig, rollout, process)


def test_tokens_are_counted_for_the_rollout(rig: Rig, endpoint: Endpoint) -> None:
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    rig.run(rollout)
    with Reader(rig.home) as reader:
        usage = reader.run(rollout_queries.read_token_usage(rollout))
    assert usage == rollout_queries.RolloutTokenUsage(
        samples=STEPS,
        prompt_tokens=100 * STEPS,
        cached_tokens=None,
        completion_tokens=7 * STEPS,
        reasoning_tokens=None,
        cost=None,
        reckoned=0,
    )


def failed(rig: Rig, endpoint: Endpoint) -> str:
    """A rollout whose worker died too often in the middle of its third step."""
    refuse(endpoint, error(503, "overloaded"))
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    process = rig.work(rollout)
    rig.until(lambda: endpoint.refused.is_set(), why="it asks for its third step")
    process.kill()
    process.join(60)
    rig.recorder.worker_ended(rollout, process.lease, "it died 5 times")
    assert rig.state(rollout) == ("failed", "it died 5 times")
    endpoint.decide = noops
    return rollout


def test_a_failed_rollout_goes_on_where_it_failed(rig: Rig, endpoint: Endpoint) -> None:
    rollout = failed(rig, endpoint)
    rig.ask(wire.Steer(rollout=rollout, action="resume", reason="the machine is mended"))
    assert rig.state(rollout) == ("queued", "the machine is mended")
    finished(rig, rollout, rig.work(rollout))


def test_one_that_is_damaged_stays_failed(rig: Rig, endpoint: Endpoint) -> None:
    rollout = failed(rig, endpoint)
    with closing(sqlite3.connect(rig.home.database)) as other, other:
        other.execute(
            "UPDATE events SET body = zeroblob(length(body)) WHERE rollout=? AND part='sample'"
            " AND step=2",
            (rollout,),
        )
    with pytest.raises(AssertionError, match=f"CORRUPT rollout={rollout}"):
        rig.ask(wire.Steer(rollout=rollout, action="resume"))
    assert rig.state(rollout)[0] == "failed"


@pytest.mark.parametrize("state", sampled(["finished", "cancelled"], 1))
def test_what_ended_otherwise_stays_ended(rig: Rig, endpoint: Endpoint, state: str) -> None:
    rollout = rig.rollout(settings=endpoint.settings, task=TASK)
    if state == "cancelled":
        rig.ask(wire.Steer(rollout=rollout, action="cancel"))
    else:
        rig.run(rollout)
    with pytest.raises(AssertionError, match="has ended"):
        rig.ask(wire.Steer(rollout=rollout, action="resume"))
    assert rig.state(rollout)[0] == state
