"""A user's own question files, as tasks: AIME-, GPQA- and LiveCodeBench-style, or plain.

JSON Lines, a JSON list, CSV or Parquet. The columns show the kind: `problem` and `answer` (AIME:
scored as mathematics), `Question`, `Correct Answer` and `Incorrect Answer 1…3` (GPQA: a choice),
`question_content` with test cases (LiveCodeBench: programs), `question` and `answers` (texts).
"""

import base64
import csv
import hashlib
import io
import json
import math
import pickle  # noqa: TID251  # LiveCodeBench packs its tests so; only a text is read of it
import random
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from houston_daemon.environments.questions.answer_scorers import CHOICE_LETTERS
from houston_daemon.environments.questions.hidden_tests import HiddenTests, TestCase
from houston_daemon.environments.questions.question_set import MAX_TEXT_CHARACTERS
from houston_daemon.suites.suite_catalog import UNATTENDED, TaskSource
from houston_shared import atomic_file
from houston_shared.errors import HoustonError, UsageError, unreadable_as_error
from houston_shared.safe_text import is_utf8
from houston_shared.task_tables import QuestionScorer

QuestionKind = Literal["text", "aime", "gpqa", "livecodebench"]
KINDS: tuple[QuestionKind, ...] = ("text", "aime", "gpqa", "livecodebench")
NOTHING_EVALUATED = "Nothing was evaluated."
SPLIT = "all"
"""Question files have no splits: what is in one is asked."""
STEPS = 20


class EvaluationQuestion(NamedTuple):
    """One question of a file, ready to be asked."""

    id: str
    question: str
    """As the agent is asked it: choices and starter code included."""
    answers: tuple[str, ...]
    """Gold answers; of a choice its letter, then its text; none where hidden tests decide."""
    scorer: QuestionScorer
    tests: HiddenTests = HiddenTests()
    bare: str = ""
    """The question alone, by which leaks are found."""


class _Row:
    """One row of a file, whose columns are found whatever their case."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = {str(name).strip().lower(): value for name, value in values.items()}
        self.where = where

    def has(self, *names: str) -> bool:
        return all(name in self._values for name in names)

    def text(self, *names: str) -> str:
        """The first of some columns that is there, as text. Raises HoustonError for none."""
        if text := self.optional_text(*names):
            return text
        raise self.error(f"it has no text in {' or '.join(f'`{name}`' for name in names)}")

    def optional_text(self, *names: str) -> str:
        """The same, or empty. Raises HoustonError for what is no text."""
        for name in names:
            if text := self._validate_text(name, self._values.get(name)):
                return text
        return ""

    def texts(self, *names: str) -> tuple[str, ...]:
        """Those of the first of some columns that is a list, else its one text. Raises HoustonError
        for none."""
        for name in names:
            if isinstance(listed := self._values.get(name), list):
                return tuple(filter(None, (self._validate_text(name, value) for value in listed)))
        return (self.text(*names),)

    def _validate_text(self, name: str, value: Any) -> str:
        text = _as_text(value)
        if len(text) > MAX_TEXT_CHARACTERS:
            raise self.error(f"`{name}` has more than {MAX_TEXT_CHARACTERS} characters")
        if not is_utf8(text):
            raise self.error(f"`{name}` has half a surrogate pair, which is no character")
        return text

    def value(self, name: str) -> Any:
        return self._values.get(name)

    def error(self, reason: str) -> HoustonError:
        return UsageError(f"{self.where}: {reason}.", NOTHING_EVALUATED)


def _as_text(value: Any) -> str:
    """A cell as text; empty where it is none, such as the NaN of an empty cell."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, float):
        value = int(value) if value.is_integer() else "" if math.isnan(value) else repr(value)
    return str(value).strip() if isinstance(value, str | int) else ""


def read_question_file(
    file: Path, kind: QuestionKind | Literal[""] = ""
) -> list[EvaluationQuestion]:
    """All questions of a file, in its order; an id that it lacks is the number of the row.

    kind: empty to tell it by the columns. Raises HoustonError naming file, row and column.
    """
    rows = [_Row(values, where) for where, values in _read_rows(file)]
    if not rows:
        raise UsageError(f"{file} has no question.", NOTHING_EVALUATED)
    chosen: QuestionKind = kind or _kind_of(rows[0])
    questions = [
        _READERS[chosen](row, row.optional_text("id", "question_id", "record id") or str(number))
        for number, row in enumerate(rows, 1)
    ]
    places_by_id: dict[str, str] = {}
    for row, question in zip(rows, questions, strict=True):
        if len(question.question) > MAX_TEXT_CHARACTERS:
            raise row.error(
                f"the question as it is asked has more than {MAX_TEXT_CHARACTERS} characters"
            )
        if question.id in places_by_id:
            raise row.error(f"the id {question.id!r} is also that of {places_by_id[question.id]}")
        places_by_id[question.id] = row.where
    return questions


def _kind_of(row: _Row) -> QuestionKind:
    if row.has("question_content"):
        return "livecodebench"
    if row.has("correct answer", "incorrect answer 1"):
        return "gpqa"
    if row.has("problem"):
        return "aime"
    if row.has("question"):
        return "text"
    raise row.error(
        "its columns match no known kind (`problem` and `answer`; `Question`, `Correct"
        " Answer` and `Incorrect Answer 1`; `question_content`; `question` and `answers`)"
    )


def _aime(row: _Row, id: str) -> EvaluationQuestion:
    question, answer = row.text("problem", "question"), row.text("answer", "answers")
    return EvaluationQuestion(id, question, (answer,), "math", bare=question)


def _gpqa(row: _Row, id: str) -> EvaluationQuestion:
    """Choices stand in an order that follows from the question: the same in every run."""
    question, right = row.text("question"), row.text("correct answer")
    wrong = [
        row.text(f"incorrect answer {number}")
        for number in range(1, len(CHOICE_LETTERS))
        if row.optional_text(f"incorrect answer {number}")
    ]
    if not wrong:
        raise row.error("it has no `Incorrect Answer 1`")
    choices = [right, *wrong]
    if len(set(choices)) < len(choices):
        raise row.error("two of its choices are the same")
    random.Random(hashlib.sha256(question.encode()).hexdigest()).shuffle(choices)
    listed = "\n".join(
        f"({letter}) {choice}" for letter, choice in zip(CHOICE_LETTERS, choices, strict=False)
    )
    letter = CHOICE_LETTERS[choices.index(right)]
    prompt = f"{question}\n\n{listed}\n\nAnswer with the letter of the right choice."
    # What another choice is but for its case is no answer as a text.
    texts = () if right.casefold() in {choice.casefold() for choice in wrong} else (right,)
    return EvaluationQuestion(id, prompt, (letter, *texts), "choice", bare=question)


def _text(row: _Row, id: str) -> EvaluationQuestion:
    gold = row.texts("answers", "golden_answers", "answer")
    if not gold:
        raise row.error("it has no answer")
    question = row.text("question")
    return EvaluationQuestion(id, question, gold, "text", bare=question)


def _livecodebench(row: _Row, id: str) -> EvaluationQuestion:
    """Public and private test cases are all hidden; examples stand in the question itself."""
    cases = [
        case
        for name in ("public_test_cases", "private_test_cases")
        for case in _test_cases(row, row.value(name))
    ]
    if not cases:
        raise row.error("it has no test case")
    function = _function_name(row)
    question, starter = row.text("question_content"), row.optional_text("starter_code")
    interface = (
        f"The program must define this:\n```python\n{starter}\n```"
        if function
        else "The program reads stdin and prints to stdout."
    )
    prompt = f"{question}\n\nAnswer with a whole Python program. {interface}"
    tests = HiddenTests(tuple(TestCase(case["input"], case["output"]) for case in cases), function)
    return EvaluationQuestion(id, prompt, (), "tests", tests, bare=question)


def _function_name(row: _Row) -> str:
    metadata = row.value("metadata")
    try:
        tables = json.loads(metadata) if isinstance(metadata, str) and metadata else metadata
    except (ValueError, RecursionError):
        raise row.error("its `metadata` is no JSON") from None
    return str(tables.get("func_name") or "") if isinstance(tables, dict) else ""


class _OnlyText(pickle.Unpickler):
    """Reads a pickled text and nothing that would be run."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds {module}.{name}")


def _test_cases(row: _Row, value: Any) -> list[dict[str, str]]:
    """Test cases as JSON, or as LiveCodeBench packs them: base64 of zlib of a pickled text."""
    if not value:
        return []
    if isinstance(value, str):
        value = _unpacked(row, value)
    try:
        return [
            {"input": str(case["input"]), "output": str(case["output"])} for case in list(value)
        ]
    except (TypeError, KeyError):
        raise row.error("a test case has no `input` and `output`") from None


def _unpacked(row: _Row, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        packed = zlib.decompress(base64.b64decode(text, validate=True))
        return json.loads(_OnlyText(io.BytesIO(packed)).load())
    except (
        ValueError, TypeError, EOFError, RecursionError, zlib.error, pickle.UnpicklingError
    ) as problem:  # fmt: skip
        raise row.error(f"its test cases cannot be read: {problem}") from None


_READERS: dict[QuestionKind, Callable[[_Row, str], EvaluationQuestion]] = {
    "text": _text,
    "aime": _aime,
    "gpqa": _gpqa,
    "livecodebench": _livecodebench,
}


def _read_rows(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a file, by its ending, each with the words for where it stands. Raises
    HoustonError."""
    with unreadable_as_error(file, NOTHING_EVALUATED, error=UsageError):
        if file.suffix == ".parquet":
            return _numbered(file, "row", enumerate(_parquet_rows(file), 1))
        text = file.read_text(encoding="utf-8-sig")
    if file.suffix == ".csv":
        csv.field_size_limit(1 << 30)
        return _numbered(file, "row", enumerate(csv.DictReader(io.StringIO(text, newline="")), 1))
    if file.suffix == ".json" or text.lstrip().startswith("["):
        listed = _parse_json(text, str(file))
        return _numbered(
            file, "row", enumerate(listed if isinstance(listed, list) else [listed], 1)
        )
    lines = ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
    parsed = ((number, _parse_json(line, f"{file}, line {number}")) for number, line in lines)
    return _numbered(file, "line", parsed)


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{where}: no JSON ({problem}).", NOTHING_EVALUATED) from None


def _numbered(
    file: Path, word: str, rows: Iterable[tuple[int, Any]]
) -> list[tuple[str, dict[str, Any]]]:
    numbered = []
    for number, row in rows:
        where = f"{file}, {word} {number}"
        if not isinstance(row, dict):
            raise UsageError(f"{where}: no JSON object.", NOTHING_EVALUATED)
        numbered.append((where, row))
    return numbered


def _parquet_rows(file: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise HoustonError(
            f"{file} is Parquet, and pyarrow is not installed.",
            NOTHING_EVALUATED,
            "pip install 'houston-agents[train]', or write the file as JSON Lines",
        ) from None
    try:
        rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    except ArrowException as problem:
        raise UsageError(f"{file} is no Parquet file: {problem}.", NOTHING_EVALUATED) from None
    return rows


def question_tasks(file: Path, questions: Sequence[EvaluationQuestion]) -> TaskSource:
    """Questions as numbered tasks. Their name holds a hash of the questions, so two results of one
    name are about the same questions."""
    content = msgspec.json.encode([question._asdict() for question in questions])
    name = f"{_slug(file.stem)[:14] or 'questions'}-{hashlib.sha256(content).hexdigest()[:8]}"

    def write(index: int, folder: Path) -> Path:
        return write_question_task(questions[index], name, folder)

    return TaskSource(name, 1, SPLIT, write, len(questions), len(questions))


def write_question_task(question: EvaluationQuestion, suite: str, folder: Path) -> Path:
    """Write a question as a task below `folder`; the path of its `task.toml`. Raises OSError."""
    name = f"{suite}-{_short_id(question.id)}"
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    line = {"id": question.id, "question": question.question, "answers": list(question.answers)}
    if question.tests.cases:
        line["tests"] = msgspec.to_builtins(question.tests)
    text = json.dumps(line, ensure_ascii=False) + "\n"
    atomic_file.write_atomically(place / "questions.jsonl", text.encode())
    task = _TASK.format(
        name=json.dumps(name),
        say=json.dumps(_INSTRUCTIONS[question.scorer]),
        steps=STEPS,
        scorer=question.scorer,
    )
    file = place / "task.toml"
    atomic_file.write_atomically(file, f"{task}{UNATTENDED}".encode())
    return file


def _slug(text: str) -> str:
    """What of a text a task's name may have."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _short_id(id: str) -> str:
    """At most 16 letters, unlike those of every other id."""
    slug = _slug(id)
    if slug == id and len(slug) <= _ID_LETTERS:
        return slug
    short = hashlib.sha256(id.encode()).hexdigest()[:8]
    return f"{slug[: _ID_LETTERS - 9].strip('-')}-{short}".strip("-")


_ID_LETTERS = 16
_INSTRUCTIONS: dict[QuestionScorer, str] = {
    "text": "Answer the question. Compute with code where that helps.",
    "math": "Solve the problem. Compute with code where that helps. Answer with the result alone.",
    "choice": "Choose the right answer. Compute with code where that helps.",
    "tests": "Write the program that is asked for. Try it with code, then answer with all of it.",
}
_TASK = """\
name = {name}
instructions = {say}
environment = "research"
tools = ["think", "code", "answer"]

[questions]
file = "questions.jsonl"
split = "all"
scorer = "{scorer}"

[budget]
steps = {steps}
active_seconds = 3600
answer_tokens = 8192
evaluations = 1

[sampling]
temperature = 0.0
"""
