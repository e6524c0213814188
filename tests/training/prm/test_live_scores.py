"""Scores of decisions as rollouts run: a real model reads them, a real recorder stores its word."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.prompts.decision_text import decision_of, decision_text
from houston_daemon.training.prm import live_scores_child, reward_policy
from houston_daemon.training.prm.live_scores_child import ScoreFollower
from houston_shared import wire
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ReviewSettings
from houston_shared.errors import HoustonError
from houston_shared.records import ContextHead
from houston_shared.store import step_queries
from houston_shared.store.store_reader import Reader
from tests.support.process_reward import RegressionModel, register_reward_model
from tests.support.recorder_client import Person, Station, Worker

HEAD = ContextHead(
    system="s", task="w2 w3", tools=(), rendered="", token_ids=None, dialect="", tokenizer=""
)


class CountingModel:
    """The real model, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.model = RegressionModel(folder)
        self.texts: list[str] = []

    def score(self, texts: Sequence[str]) -> list[float]:
        self.texts += texts
        return self.model.score(texts)


class Scoring:
    """A station with a process reward model, and the follower that scores in it."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.person: Person = station.person()
        self.models: list[CountingModel] = []
        register_reward_model(station.home, self.person)
        self.loaded = LoadedConfiguration(
            config=Configuration(review=ReviewSettings(process_reward="prm")),
            home=station.home,
            source="defaults",
        )
        self.follower = self.follow()

    def follow(self) -> ScoreFollower:
        """A new process would begin like this."""
        return ScoreFollower(self.loaded, self._load)

    def _load(self, folder: Path, device: str) -> CountingModel:
        assert device == "cpu"
        self.models.append(CountingModel(folder))
        return self.models[-1]

    def rounds(self) -> int:
        """Until nothing is left; how many steps had no score."""
        scored = 0
        while steps := self.follower.round():
            scored += steps
        return scored

    def scores(self, rollout: str) -> list[tuple[int, int, float]]:
        return self.station.query(
            "SELECT step, attempt, score FROM process_rewards WHERE rollout = ?"
            " ORDER BY step, attempt",
            rollout,
        )

    def expected(self, rollout: str) -> list[tuple[int, int, float]]:
        """What the model says of every closed decision, each read by itself."""
        with Reader(self.station.home) as reader:
            records = reader.run(step_queries.read_steps(rollout))
        decisions = [decision_of(record) for record in records]
        texts = [
            decision_text(HEAD.task, decisions[:number], decision)
            for number, decision in enumerate(decisions)
        ]
        values = RegressionModel(self.model_folder).score(texts)
        return [
            (record.step, record.attempt, pytest.approx(value if decision.sound else 0.0, abs=1e-6))
            for record, decision, value in zip(records, decisions, values, strict=True)
        ]

    @property
    def model_folder(self) -> Path:
        return self.station.home.path / "policies" / "prm@2"


@pytest.fixture
def scoring(station: Station, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scoring]:
    monkeypatch.setattr(live_scores_child, "GATHER_SECONDS", 0.0)
    yield Scoring(station)


def begun(station: Station) -> Worker:
    worker = station.working()
    assert isinstance(worker.say(wire.StoreHead, head=HEAD), wire.Ack)
    return worker


def act(worker: Worker, step: int, attempt: int = 1, **sample: Any) -> None:
    given: dict[str, Any] = {"thought": f"w{step + 5} w{step + 6}", **sample}
    worker.sample(step, attempt, **given)
    if given.get("calls", True):
        worker.intent(step, 0, attempt)
        worker.result(step, 0, attempt, text=f"w{step + 20}")
    assert isinstance(worker.observation(step, attempt), wire.Ack)


def test_every_closed_decision_is_scored_by_the_text_that_training_reads(
    scoring: Scoring,
) -> None:
    worker = begun(scoring.station)
    for step in range(1, 40):  # more than are told, more than a batch
        act(worker, step)
    worker.sample(40)
    assert scoring.rounds() == 39
    assert scoring.scores(worker.rollout) == scoring.expected(worker.rollout)[:39]
    assert len({score for _, _, score in scoring.scores(worker.rollout)}) > 20


def test_a_decision_that_is_no_action_earns_nothing_and_is_not_read(scoring: Scoring) -> None:
    worker = begun(scoring.station)
    act(worker, 1)
    act(worker, 2, calls=(), malformed="no call", thought="w50")
    act(worker, 3)
    scoring.rounds()
    assert scoring.scores(worker.rollout)[1] == (2, 1, 0.0)
    assert scoring.scores(worker.rollout) == scoring.expected(worker.rollout)
    assert len(scoring.models[0].texts) == 2


def test_what_closes_later_is_scored_then_and_nothing_twice(scoring: Scoring) -> None:
    first, second = begun(scoring.station), begun(scoring.station)
    for step in (1, 2, 3):
        act(first, step)
    assert scoring.rounds() == 3
    assert scoring.rounds() == 0
    act(first, 4)
    act(second, 1)
    assert scoring.rounds() == 2
    assert scoring.scores(first.rollout) == scoring.expected(first.rollout)
    assert len(scoring.models[0].texts) == 5
    other = scoring.follow()
    assert other.round() == 0, "a process that begins anew finds what lacks a score: nothing"


def test_a_process_that_was_killed_goes_on_where_it_ended(scoring: Scoring) -> None:
    worker = begun(scoring.station)
    for step in range(1, 41):
        act(worker, step)
    assert scoring.follower.round() == 4
    scoring.follower = scoring.follow()  # a kill takes all that was in memory
    assert scoring.rounds() == 36
    assert scoring.scores(worker.rollout) == scoring.expected(worker.rollout)


def test_an_attempt_that_replaces_another_is_scored_too(scoring: Scoring) -> None:
    worker = begun(scoring.station)
    act(worker, 1)
    act(worker, 2)
    scoring.rounds()
    act(worker, 2, attempt=2, thought="w70 w71")
    act(worker, 3)
    scoring.rounds()
    scored = scoring.scores(worker.rollout)
    assert [(step, attempt) for step, attempt, _ in scored] == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert [row for row in scored if row[:2] != (2, 1)] == scoring.expected(worker.rollout)


def test_a_step_that_is_replaced_while_it_is_scored_gets_the_score_of_what_stands(
    scoring: Scoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = begun(scoring.station)
    act(worker, 1)
    scored = CountingModel.score

    def replaced_meanwhile(model: CountingModel, texts: Sequence[str]) -> list[float]:
        if not model.texts:
            act(worker, 1, attempt=2, thought="w80")
        return scored(model, texts)

    monkeypatch.setattr(CountingModel, "score", replaced_meanwhile)
    scoring.rounds()
    assert scoring.scores(worker.rollout) == scoring.expected(worker.rollout)
    assert scoring.scores(worker.rollout)[0][:2] == (1, 2)


def test_of_a_rollout_that_was_erased_nothing_is_scored(scoring: Scoring) -> None:
    worker, other = begun(scoring.station), begun(scoring.station)
    act(worker, 1)
    act(worker, 2)
    act(other, 1)
    worker.say(wire.StoreState, state="finished")
    query = "SELECT seq FROM events WHERE rollout = ? AND step = 1"
    seqs = tuple(seq for (seq,) in scoring.station.query(query, worker.rollout))
    scoring.person.ask(wire.EraseBodies(rollout=worker.rollout, seqs=seqs))
    scoring.rounds()
    assert scoring.scores(worker.rollout) == []
    assert scoring.scores(other.rollout) == scoring.expected(other.rollout)


class Waits:
    """Notices of a daemon in which nothing happens any more: ends what waits for them."""

    def __init__(self, *_: Any) -> None:
        pass

    def wait(self) -> None:
        raise InterruptedError


def test_a_rollout_that_is_damaged_is_named_and_the_others_are_scored(
    scoring: Scoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, str]] = []
    monkeypatch.setattr(live_scores_child, "report_failures", told.append)
    monkeypatch.setattr(live_scores_child, "CommitNotices", Waits)
    worker, other = begun(scoring.station), begun(scoring.station)
    for each in (worker, other):
        act(each, 1)
    with contextlib.closing(sqlite3.connect(scoring.station.home.database)) as database, database:
        damage = "UPDATE events SET body = x'c1' WHERE rollout = ? AND part = 'sample'"
        database.execute(damage, (worker.rollout,))
    with pytest.raises(InterruptedError):
        scoring.follower.run()
    assert scoring.scores(other.rollout) == scoring.expected(other.rollout)
    assert [list(failed) for failed in told] == [[worker.rollout]]
    assert "next: houston verify" in told[0][worker.rollout]


def test_weak_decisions_are_marked_by_the_threshold(scoring: Scoring) -> None:
    worker = begun(scoring.station)
    for step in range(1, 20):
        act(worker, step)
    act(worker, 20, calls=(), malformed="no call")
    scoring.rounds()
    rows = scoring.station.query("SELECT score, weak FROM process_rewards")
    assert {weak for _, weak in rows} == {0, 1}
    assert all(weak == (score < 0.3) for score, weak in rows)


def test_a_newer_model_scores_again_where_only_its_name_is_given(scoring: Scoring) -> None:
    worker = begun(scoring.station)
    act(worker, 1)
    scoring.rounds()
    register_reward_model(scoring.station.home, scoring.person, number=3, seed=9)
    assert scoring.rounds() == 1
    query = "SELECT policy FROM process_rewards ORDER BY policy"
    assert scoring.station.query(query) == [("prm@2",), ("prm@3",)]


WRONG = {
    "no such policy": ("judge", "names 'judge', and there is no such policy"),
    "no such number": ("prm@9", "names 'prm@9', and there is no such policy"),
    "another kind": ("policy", "policy@2 is of the kind lora"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_score_is_named_in_a_sentence(scoring: Scoring, case: str) -> None:
    from tests.support.full_home import train

    name, words = WRONG[case]
    train(scoring.station)
    scoring.loaded.config = Configuration(review=ReviewSettings(process_reward=name))
    with pytest.raises(HoustonError, match=words):
        scoring.follow().round()


def test_a_missing_extra_is_named_with_what_to_install(
    scoring: Scoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_policy, "SCORER_PACKAGES", ("torch", "no_such_package"))
    with pytest.raises(HoustonError, match="extra `local`: no_such_package") as problem:
        scoring.follow().round()
    assert "houston-agents[local]" in problem.value.next


RESTS = {
    "a core is free": (1.0, 1.9, 2, 0.0),
    "every core is wanted": (1.0, 2.1, 2, 9.0),
    "a long batch": (100.0, 30.0, 16, 60.0),
}


@pytest.mark.parametrize("case", RESTS)
def test_on_a_busy_machine_it_takes_a_tenth_of_a_core(case: str) -> None:
    work, load, cores, seconds = RESTS[case]
    assert live_scores_child.rest_seconds(work, load, cores) == seconds


BATCHES = {
    "short": (4, 0.1, 8),
    "short, and as large as they get": (32, 0.1, 32),
    "neither": (8, 1.0, 8),
    "long": (8, 3.0, 4),
    "long, and as small as they get": (1, 30.0, 1),
}


@pytest.mark.parametrize("case", BATCHES)
def test_a_batch_grows_while_it_is_short_and_shrinks_when_it_is_long(case: str) -> None:
    steps, work, expected = BATCHES[case]
    assert live_scores_child.next_batch_size(steps, work) == expected
