"""Question files as people have them, and those that are broken."""

import base64
import json
import pickle  # noqa: TID251  # as LiveCodeBench packs its tests
import zlib
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments.questions.hidden_tests import HiddenTests, TestCase
from houston_daemon.suites.question_files import question_tasks, read_question_file
from houston_shared.errors import HoustonError
from houston_shared.task import load_task

AIME = {"ID": "2024-I-1", "Problem": "Find $m+n$.", "Solution": "…", "Answer": 204}
GPQA = {
    "Record ID": "rec06",
    "Question": "Which base pairs with adenine?",
    "Correct Answer": "Thymine",
    "Incorrect Answer 1": "Cytosine",
    "Incorrect Answer 2": "Guanine",
    "Incorrect Answer 3": "Inosine",
}
PUBLIC = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
PRIVATE = [{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]


def packed(value: Any) -> str:
    """As LiveCodeBench packs its private test cases."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def livecodebench(**changes: Any) -> dict[str, Any]:
    row = {
        "question_id": "abc301_a",
        "question_content": "Print the sum of two numbers.",
        "starter_code": "",
        "public_test_cases": json.dumps(PUBLIC),
        "private_test_cases": packed(json.dumps(PRIVATE)),
        "metadata": "{}",
    }
    return {**row, **changes}


def lines(folder: Path, *rows: Any, name: str = "set.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_aime_is_scored_as_mathematics(tmp_path: Path) -> None:
    (question,) = read_question_file(lines(tmp_path, AIME))
    assert question[:4] == ("2024-I-1", "Find $m+n$.", ("204",), "math")


def test_choices_stand_in_an_order_that_never_changes(tmp_path: Path) -> None:
    (question,) = read_question_file(lines(tmp_path, GPQA))
    letter, text = question.answers
    assert (question.id, question.scorer, text) == ("rec06", "choice", "Thymine")
    assert f"({letter}) Thymine" in question.question
    assert all(f"({each}) " in question.question for each in "ABCD")
    assert question == read_question_file(lines(tmp_path, GPQA))[0]
    others = [{**GPQA, "Question": f"{number}?", "Record ID": str(number)} for number in range(40)]
    placed = {each.answers[0] for each in read_question_file(lines(tmp_path, *others))}
    assert placed == set("ABCD"), "the right one is nowhere in particular"


def test_a_choice_that_differs_by_case_is_named_by_its_letter_alone(tmp_path: Path) -> None:
    row = {**GPQA, "Correct Answer": "AaBb", "Incorrect Answer 1": "aabb"}
    (question,) = read_question_file(lines(tmp_path, row))
    assert len(question.answers) == 1 and f"({question.answers[0]}) AaBb" in question.question


def test_tests_of_programs_are_unpacked_and_hidden(tmp_path: Path) -> None:
    function = livecodebench(
        question_id="two",
        starter_code="class Solution:\n    def add(self, a, b):",
        metadata=json.dumps({"func_name": "add"}),
        public_test_cases=json.dumps([{"input": "1\n2", "output": "3", "testtype": "functional"}]),
        private_test_cases=[],
    )
    program, called = read_question_file(lines(tmp_path, livecodebench(), function))
    assert program.tests == HiddenTests((TestCase("1 2\n", "3\n"), TestCase("5 6\n", "11\n")))
    assert called.tests == HiddenTests((TestCase("1\n2", "3"),), "add")
    assert "reads stdin" in program.question and "class Solution" in called.question
    assert "5 6" not in program.question and program.scorer == "tests"


def test_csv_json_parquet_and_lines_say_the_same(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"id": "a", "problem": "1+1?", "answer": "2"},
        {"id": "b", "problem": "x,\ny", "answer": "3"},
    ]
    listed = tmp_path / "set.json"
    listed.write_text(json.dumps(rows))
    table = tmp_path / "set.csv"
    table.write_text('id,problem,answer\na,1+1?,2\nb,"x,\ny",3\n')
    columns = tmp_path / "set.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), columns)
    read = [read_question_file(file) for file in (lines(tmp_path, *rows), listed, table, columns)]
    assert read[0] == read[1] == read[2] == read[3]
    assert [question.id for question in read[0]] == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"problem": "x", "answer": 1234567.5}, ("1234567.5",)),
        ({"problem": "x", "answer": 204.0}, ("204",)),
        ({"problem": "x", "answer": 0}, ("0",)),
        ({"question": "x", "answers": ["a", 7]}, ("a", "7")),
        ({"question": "x", "answer": ["a", "b"]}, ("a", "b")),
        ({"question": "x", "answer": "a"}, ("a",)),
    ],
    ids=["many digits", "a whole number", "zero", "a list", "a list as answer", "a text"],
)
def test_answers_are_what_the_file_says(
    tmp_path: Path, row: dict[str, Any], answers: tuple[str, ...]
) -> None:
    (question,) = read_question_file(lines(tmp_path, row))
    assert question.answers == answers


def test_ids_may_count_from_zero_and_lines_count_from_one(tmp_path: Path) -> None:
    file = lines(tmp_path, *({"id": id, "problem": f"{id}+1?", "answer": id + 1} for id in (0, 1)))
    assert [question.id for question in read_question_file(file)] == ["0", "1"]
    file.write_text("\n\n" + file.read_text() + "{\n")
    with pytest.raises(HoustonError, match="line 5: no JSON"):
        read_question_file(file)


class Runs:
    """What would run code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("it ran",))


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ({"prompt": "x"}, "line 1: its columns match no known kind"),
        ({"problem": "x"}, "line 1: it has no text in `answer`"),
        ({"problem": " ", "answer": 1}, "it has no text in `problem`"),
        ({"question": "x", "answers": []}, "it has no answer"),
        ({"question": "x", "answer": float("nan")}, "it has no text in `answers`"),
        ({"problem": "x" * 30_001, "answer": 1}, "`problem` has more than 30000 characters"),
        ({"problem": "\ud800", "answer": 1}, "`problem` has half a surrogate pair"),
        ({"question": "x", "answers": ["\ud800"]}, "`answers` has half a surrogate pair"),
        ({"question": "x", "answers": ["y", "x" * 30_001]}, "`answers` has more than 30000"),
        ({**GPQA, "Incorrect Answer 1": ""}, "two of its choices|no `Incorrect Answer 1`|^$"),
        ({**GPQA, "Incorrect Answer 2": "Thymine"}, "two of its choices are the same"),
        (livecodebench(public_test_cases="", private_test_cases=""), "it has no test case"),
        (livecodebench(private_test_cases="!"), "its test cases cannot be read"),
        (livecodebench(private_test_cases=packed(Runs())), "it holds builtins.print"),
        (livecodebench(public_test_cases='[{"input": "1"}]'), "no `input` and `output`"),
        (livecodebench(metadata="{"), "its `metadata` is no JSON"),
        (livecodebench(metadata="[" * 200_000), "its `metadata` is no JSON"),
        (livecodebench(public_test_cases="[" * 200_000), "its test cases cannot be read"),
        (livecodebench(private_test_cases=packed("[" * 200_000)), "its test cases cannot be read"),
        (7, "line 1: no JSON object"),
    ],
)
def test_a_row_that_is_none_is_named(
    tmp_path: Path, row: Any, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if cause.endswith("|^$"):  # further choices may be missing
        (question,) = read_question_file(lines(tmp_path, row))
        assert question.question.count("\n(") == 3
        return
    with pytest.raises(HoustonError) as refused:
        read_question_file(lines(tmp_path, row))
    assert cause in refused.value.cause and "set.jsonl" in refused.value.cause
    assert "it ran" not in capsys.readouterr().out


def test_two_questions_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match=r"line 2: the id '2024-I-1' is also that of .*line 1"):
        read_question_file(lines(tmp_path, AIME, AIME))


def test_every_question_is_a_task_that_can_be_read(tmp_path: Path) -> None:
    rows = [{**AIME, "ID": id} for id in ("a", "A", "2024-I-1", "x" * 200, "日本", "a/b")]
    file = lines(tmp_path, *rows)
    tasks = question_tasks(file, read_question_file(file))
    written = [tasks.write(index, tmp_path / "tasks") for index in range(len(rows))]
    loaded = [load_task(each).task for each in written]
    assert len({task.name for task in loaded}) == len(rows)
    assert {task.questions.scorer for task in loaded} == {"math"}
    other = lines(tmp_path, {**AIME, "Answer": 205})
    assert question_tasks(other, read_question_file(other)).suite != tasks.suite
