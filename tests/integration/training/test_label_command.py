"""`houston label` on real rollouts: people, a judge at a real chat endpoint, and what is no
action."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.prm.decision_labels import DecisionLabel, read_labels
from houston_daemon.training.prm.scoring_rubric import load_rubric
from tests.engines.chat_server import ChatServer, delta, tool
from tests.support.station import Station

STEPS = [
    {"thought": "look", "calls": [{"name": "list_files", "arguments": {"path": "."}}]},
    {"thought": "no such tool", "calls": [{"name": "fly", "arguments": {}}]},
    {"thought": "write", "calls": [
        {"name": "create_file", "arguments": {"filename": "answer.txt", "content": "x\n"}}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def station(server: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("label"))
    made.home.mkdir()
    (made.home / "houston.toml").write_text(
        f'[engines.jury]\nkind = "chat"\nurl = "{server.url}"\nmodel = "m"\nwindow = 40000\n'
        "[judge]\nconcurrency = 1\ntries = 2\nprice_prompt = 2.0\n"
    )
    made.start()
    yield made
    made.clear()


@pytest.fixture(scope="module")
def rollout(station: Station) -> str:
    (made,) = station.rollout(station.task(budget="minimum_steps = 1"), station.script(STEPS))
    assert station.ended(made)["state"] == "finished"
    return made


def said(score: float, reason: str = "it is sound") -> list[dict[str, Any]]:
    arguments = json.dumps({"score": score, "reason": reason})
    return [tool(arguments, name="score_decision"), delta("tool_calls")]


def labelled(station: Station, *words: str, code: int = 0) -> dict[str, Any]:
    """What `houston label … --json` says."""
    report: dict[str, Any] = json.loads(station.run("label", *words, "--json", code=code).stdout)
    return report


def by_step(file: Path) -> dict[int, DecisionLabel]:
    return {label.step: label for label in read_labels(file)}


def test_people_a_judge_and_a_rule_each_label_what_is_theirs(
    station: Station, server: ChatServer, rollout: str, tmp_path: Path
) -> None:
    file = tmp_path / "labels.jsonl"
    people = (rollout, "--people", "--out", str(file))
    rules_only = labelled(station, *people)
    assert rules_only["by_source"] == {"rule": 1}, "no person has said anything yet"
    station.run("verdict", rollout, "1", "mask")

    server.answers += [said(0.75), said(1)]
    report = labelled(station, rollout, "--judge", "jury", "--out", str(file))
    assert report["by_source"] == {"human": 1, "judge": 2, "rule": 1}
    assert report["cost"]["requests"] == 2 and report["cost"]["price"] > 0
    labels = by_step(file)
    assert {step: label.score for step, label in labels.items()} == {1: 0, 2: 0, 3: 0.75, 4: 1}
    assert [labels[step].sound for step in (1, 2, 3, 4)] == [True, False, True, True]
    assert labels[3].rubric == report["rubric"] == load_rubric().digest and labels[3].by == "jury"
    assert labels[1].source == "human" and labels[1].by and not labels[1].rubric
    asked = server.asked[0]["messages"][-1]["content"]
    assert labels[3].text in asked, "what is judged is what will be trained on"
    assert labels[3].text.endswith("content: x") and "Step 3, the decision:" in labels[3].text

    again = labelled(station, rollout, "--judge", "jury", "--out", str(file))
    assert again["cost"]["cached"] == 2 and again["cost"]["requests"] == 0
    assert by_step(file) == labels

    server.answers += [said(0.25)]
    report = labelled(station, rollout, "--judge", "jury", "--also-judged", "--out", str(file))
    assert report["agreement"]["masked"] == 1 and report["agreement"]["mean_masked"] == 0.25
    assert by_step(file) == labels, "a person wins"
    assert labelled(station, *people)["by_source"] == {"human": 1, "rule": 1}


def test_an_edited_rubric_asks_anew_and_what_cannot_be_used_is_named(
    station: Station, server: ChatServer, rollout: str, tmp_path: Path
) -> None:
    rubric, file = tmp_path / "mine.md", tmp_path / "labels.jsonl"
    rubric.write_text(station.run("label", "--print-rubric").stdout + "\nBe brief.\n")
    server.asked.clear()
    server.answers[:] = [said(0.3), said(0.4), said(1, "")]
    server.answers += [said(0.5)] * 8
    report = labelled(
        station, rollout, "--judge", "jury", "--rubric", str(rubric), "--out", str(file), code=1
    )
    assert 'its "score" is 0.3' in server.asked[1]["messages"][-1]["content"]
    assert len(report["undecided"]) == 1 and 'its "score" is 0.4' in report["undecided"][0]
    assert report["rubric"] != load_rubric().digest
    assert len(read_labels(file)) == report["labels"] > 0
    server.answers.clear()


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        ((), 2, "Name the rollouts to label"),
        (("nothing-like-it",), 66, "nothing-like-it"),
        (("--suite-run", "none"), 66, "There is no run of a suite 'none'"),
        (("ROLLOUT", "--judge", "nobody"), 66, "nobody"),
        (("ROLLOUT", "--judge", "script:x.jsonl"), 78, "plays a file"),
        (("ROLLOUT", "--rubric", "nowhere.md"), 66, "nowhere.md cannot be read"),
        (("ROLLOUT", "--people", "--out", "/proc/labels.jsonl"), 1, "cannot be written"),
    ],
)
def test_what_cannot_be_labelled_is_refused_in_a_sentence(
    station: Station, rollout: str, words: tuple[str, ...], code: int, cause: str
) -> None:
    given = [rollout if word == "ROLLOUT" else word for word in words]
    assert cause in station.run("label", *given, code=code).stderr
