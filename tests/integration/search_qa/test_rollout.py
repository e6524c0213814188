"""`houston rollout start` with search_qa, through a kill of everything, to a score."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.environments.questions.question_set import choose_question, read_questions
from houston_shared.task_tables import QuestionSettings
from tests.integration.search_qa.test_questions import PACKAGED
from tests.support.station import Station


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    yield made
    made.clear()


def seed_of(question: str) -> int:
    questions = read_questions(PACKAGED / "questions.jsonl")
    return next(
        s for s in range(24) if choose_question(questions, QuestionSettings(), s, "").id == question
    )


def call(name: str, **arguments: object) -> dict[str, object]:
    return {
        "thought": f"I {name}.",
        "calls": [{"name": name, "arguments": arguments}],
        "delay": 0.1,
    }


STEPS = [
    call("search", query="Morning Heron captain"),
    call("search", query="Freya Lund"),
    call("open_document", id="doc-09"),
    call("answer", text="1676"),
]


def test_a_question_is_answered_through_a_kill(station: Station) -> None:
    assert "the environment scores" in station.run("task", "validate", str(PACKAGED)).stdout
    station.start()
    words = ["rollout", "start", str(PACKAGED), "--seed", str(seed_of("q-01")), "--engine"]
    (row,) = station.json(*words, station.script(STEPS))
    (other,) = station.json(
        *words, station.script([{**call("search", query="x"), "delay": 0}] * 30, "idle")
    )
    rollout = row["rollout"]
    station.until(lambda: station.closed(rollout) >= 2, why="two steps")
    station.kill_daemon()
    station.start()
    record = station.ended(rollout)
    assert record["state"] == "finished", record
    steps = station.steps(rollout)
    assert [step["calls"][0]["name"] for step in steps] == [
        "search", "search", "open_document", "answer",
    ]  # fmt: skip
    assert "Ivers Quay" in steps[2]["observation"]
    scores = "SELECT best_score, evaluations FROM rollouts WHERE id = ?"
    assert station.query(scores, rollout) == [(100.0, 1)]
    (head,) = station.json("context", rollout, "1")
    assert "Question: In which year was the town founded" in head["rendered"]
    assert "workspace" not in head["rendered"], "there is none to speak of"
    station.ended(other["rollout"])
    assert station.query(scores, other["rollout"]) == [(0.0, 1)], "no answer is a score of 0"
    station.run("verify")
