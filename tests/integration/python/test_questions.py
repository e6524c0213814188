"""Numbers are compared as numbers; the packaged set is the one that its program writes."""

import subprocess
import sys
from pathlib import Path

import pytest

from houston_daemon.environments.questions.answer_scoring import same_answer
from houston_daemon.environments.questions.question_set import choose_question, read_questions
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import ConfigurationError
from houston_shared.task import load_task
from houston_shared.task_tables import QuestionSettings
from tests.support.station import Station

PACKAGED = Path(__file__).parents[3] / "daemon" / "houston_daemon" / "demo/tasks/python-maths"
SAME = [
    ("42", "42"), (" 42. ", "42"), ("4.2e1", "42"), ("1,000", "1000"), ("-5", "−5"),
    ("0.5", "1/2"), ("2/4", "1/2"), (r"\frac{1}{2}", "0.50"), (r"$\boxed{7}$", "7"),
    ("3.1415926", "3.14159265"), (r"-\dfrac{3}{4}", "-0.75"), ("x + 1", "X+1"), ("abc", "abc"),
    ("`abc`", "abc"), ("[1, 2]", "[1,2]"), ("+7", "7"), (".5", "0.5"),
]  # fmt: skip
OTHER = [
    ("5", "-5"), ("35", "3.5"), ("41", "42"), ("3.14", "3.14159265"), ("x2-1", "x^2-1"),
    ("", "42"), ("4 2", "x"), ("1/0", "1"), ("9" * 200, "9"), ("1e999999", "1"), ("nan", "0"),
    ("42 apples", "42"), ("1,00", "100"), ("1000001", "1000000"), ("-", "0"), (".", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_the_same_number_counts_however_it_is_written(answer: str, gold: str) -> None:
    assert same_answer(answer, ["other", gold]) == same_answer(gold, [answer]) == 1.0


@pytest.mark.parametrize(("answer", "gold"), OTHER)
def test_another_number_does_not_count(answer: str, gold: str) -> None:
    assert same_answer(answer, [gold]) == 0.0


def test_the_packaged_set_is_what_its_program_writes() -> None:
    check_task_names(load_task(PACKAGED))
    written = subprocess.run(
        [sys.executable, PACKAGED / "generate.py"], capture_output=True, check=True
    )
    assert written.stdout == (PACKAGED / "questions.jsonl").read_bytes()
    questions = read_questions(PACKAGED / "questions.jsonl")
    kinds = {one.id.rpartition("-")[0] for one in questions}
    assert len(questions) == 60 and len(kinds) == 12
    tested = [one for one in questions if one.split == "test"]
    assert {one.id.rpartition("-")[0] for one in tested} == kinds
    assert len({one.question for one in questions}) == 60


WRONG = [
    ('[python]\npackages = ["no_such_package"]\n', "no_such_package"),
    ('tools = ["eval"]\n', "names 'eval'; python has python, finish"),
    ('[evaluate]\ncommand = "true"\n', "runs no evaluator"),
    ('[questions]\nfile = "q.jsonl"\n', "q.jsonl cannot be read"),
    ('[python]\nmemory_mb = 1\n', "memory_mb"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_task_that_cannot_run_is_refused(tmp_path: Path, text: str, words: str) -> None:
    head = 'name = "t"\ninstructions = "Answer."\nenvironment = "python"\n'
    (tmp_path / "task.toml").write_text(head + text)
    with pytest.raises(ConfigurationError, match=words):
        check_task_names(load_task(tmp_path))


def test_a_rollout_computes_and_answers(tmp_path: Path) -> None:
    station = Station(tmp_path)
    try:
        station.start()
        questions = read_questions(PACKAGED / "questions.jsonl")
        question = choose_question(questions, QuestionSettings(), 0, "")
        calls = [
            [{"name": "python", "arguments": {"code": "1 / 0"}}],
            [{"name": "python", "arguments": {"code": "from sympy import *\nInteger(6) * 7"}}],
            [{"name": "finish", "arguments": {"answer": question.answers[0]}}],
        ]
        script = station.script([{"thought": "t", "calls": one} for one in calls])
        words = ["rollout", "start", str(PACKAGED), "--seed", "0", "--engine", script]
        (row,) = station.json(*words)
        assert station.ended(row["rollout"])["state"] == "finished"
        steps = station.steps(row["rollout"])
        assert "ZeroDivisionError" in steps[0]["observation"]
        assert steps[1]["observation"].startswith("42\n")
        scores = "SELECT best_score, evaluations FROM rollouts WHERE id = ?"
        assert station.query(scores, row["rollout"]) == [(100.0, 1)]
        (head,) = station.json("context", row["rollout"], "1")
        assert f"Question: {question.question}" in head["rendered"]
    finally:
        station.clear()
