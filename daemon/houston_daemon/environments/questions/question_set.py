"""A question set: JSON Lines, split into train and test so that no question is in both.

Each line is an object with `question`, `answers` (or `golden_answers`), and perhaps `id`, `split`
and `tests`. A line without a split gets one by the hash of its question: a fifth are for the test.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.environments.questions.answer_scoring import normal
from houston_daemon.environments.questions.hidden_tests import HiddenTests
from houston_shared.errors import ConfigurationError
from houston_shared.task_tables import QuestionSettings, QuestionSplit

MAX_TEXT_CHARACTERS = 30_000
"""Most characters of a question or an answer."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question with everything that counts as its answer."""

    id: str
    question: str
    answers: tuple[str, ...]
    """None where hidden tests say what is right."""
    split: QuestionSplit
    tests: HiddenTests = HiddenTests()


def read_questions(file: Path) -> tuple[Question, ...]:
    """The whole set. Raises ConfigurationError naming the line that is wrong.

    A question that stands twice is an error, in one split or in two: the number of questions would
    not be what it says, and what is tested might have been trained on.
    """
    questions: dict[str, tuple[int, Question]] = {}
    ids: dict[str, int] = {}
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        question = _question(line, number, f"{file}, line {number}")
        key = normal(question.question) or question.question
        if key in questions:
            raise ConfigurationError(
                f"{file}, line {number}: this repeats the question of line {questions[key][0]}."
            )
        if question.id in ids:
            raise ConfigurationError(
                f"{file}, line {number}: the id {question.id!r} is also that of line "
                f"{ids[question.id]}."
            )
        questions[key], ids[question.id] = (number, question), number
    return tuple(question for _, question in questions.values())


def choose_question(
    questions: Sequence[Question], settings: QuestionSettings, seed: int, where: str
) -> Question:
    """The question of a rollout: `settings.id`, or by its seed.

    The questions of the split have a fixed order that does not depend on the file's; `repeat`
    consecutive seeds share a question, so seeds 0, 1, … go through all of them before one repeats.
    Raises ConfigurationError; where: the set's name in the message.
    """
    if settings.id:
        for question in questions:
            if question.id == settings.id:
                return question
        raise ConfigurationError(f"{where} has no question with the id {settings.id!r}.")
    order = sorted(
        (candidate for candidate in questions if settings.split in ("all", candidate.split)),
        key=lambda candidate: _hash(candidate.id),
    )
    if not order:
        raise ConfigurationError(f"{where} has no question in the split {settings.split!r}.")
    return order[seed // settings.repeat % len(order)]


def _lines(file: Path) -> list[str]:
    try:
        # Lines end with a line feed only: JSON may hold U+2028 and its like as they are.
        return file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not UTF-8 text.") from None
    except OSError as problem:
        raise ConfigurationError(f"{file} cannot be read: {problem.strerror}.") from None


def _question(line: str, number: int, where: str) -> Question:
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise ConfigurationError(f"{where}: not JSON.") from None
    if not isinstance(entry, dict):
        raise ConfigurationError(f"{where}: not a JSON object.")
    text = entry.get("question")
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT_CHARACTERS:
        raise ConfigurationError(
            f"{where}: `question` must be text of 1 to {MAX_TEXT_CHARACTERS} characters."
        )
    answers = _texts(entry.get("answers", entry.get("golden_answers")))
    tests = _tests(entry.get("tests"), where)
    if not answers and not tests.cases:
        raise ConfigurationError(f"{where}: `answers` must be a list of one or more texts.")
    split = entry.get("split", "test" if _hash(normal(text)) % 5 == 0 else "train")
    if split not in ("train", "test"):
        raise ConfigurationError(f"{where}: `split` is {split!r}; allowed: train, test.")
    return Question(
        id=str(entry.get("id", number))[:MAX_TEXT_CHARACTERS],
        question=text.strip(),
        answers=answers,
        split=split,
        tests=tests,
    )


def _tests(value: Any, where: str) -> HiddenTests:
    """The hidden tests of a question; none where it has none."""
    try:
        return msgspec.convert(value or {}, HiddenTests)
    except msgspec.ValidationError as problem:
        raise ConfigurationError(f"{where}: `tests` are not valid: {problem}.") from None


def _texts(value: Any) -> tuple[str, ...]:
    """The answers; empty when any of them is none."""
    if not isinstance(value, list):
        return ()
    sound = [
        text
        for text in value
        if isinstance(text, str) and text.strip() and len(text) <= MAX_TEXT_CHARACTERS
    ]
    return tuple(sound) if len(sound) == len(value) else ()


def _hash(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())
