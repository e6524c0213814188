"""How an answer to a question is scored: as a text, as mathematics, or as one of several choices.

`[questions] scorer` selects one. `hidden_tests` scores programs that must pass tests. Scorers get
the gold answers and never send text to the agent.
"""

import importlib.util
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from houston_daemon.environments.questions.answer_scoring import (
    exact_match,
    same_answer,
    token_f1,
)
from houston_shared.errors import ConfigurationError
from houston_shared.task_tables import QuestionScorer

MATH_SECONDS = 10
"""Processor time of one comparison; beyond it the answer counts as wrong. Not by the clock: a busy
machine makes no right answer wrong."""
MATH_PATIENCE_SECONDS = 300.0
"""How long it may take by the clock: beyond that it hangs."""
MATH_PACKAGE = "math_verify"
INSTALL_MATH = "pip install 'houston-agents[evaluate]'"

_OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)
_MATH_CHILD = "houston_daemon.environments.questions.math_child"

log = logging.getLogger(__name__)


class AnswerScore(NamedTuple):
    """How well an answer fits, 0 to 1."""

    exact: float
    f1: float = 0.0


def text_score(answer: str, gold: Sequence[str]) -> AnswerScore:
    """Numbers as numbers, other answers as texts."""
    exact = max(exact_match(answer, gold), same_answer(answer, gold))
    return AnswerScore(exact, token_f1(answer, gold))


def math_score(answer: str, gold: Sequence[str]) -> AnswerScore:
    """The same number or expression, by math-verify in a process of its own."""
    if same_answer(answer, gold):
        return AnswerScore(1.0)
    command = [sys.executable, "-P", "-m", _MATH_CHILD, str(MATH_SECONDS)]
    request = json.dumps({"answer": answer, "gold": list(gold)})
    try:
        ended = subprocess.run(
            command,
            input=request,
            capture_output=True,
            text=True,
            timeout=MATH_PATIENCE_SECONDS,
            check=True,
        )
        return AnswerScore(float(json.loads(ended.stdout)["same"]))
    except subprocess.TimeoutExpired:
        log.warning("comparing an answer did not end: it counts as wrong")
    except (subprocess.CalledProcessError, ValueError) as problem:
        if getattr(problem, "returncode", 0) in _OUT_OF_TIME:
            reason = f"it took more than {MATH_SECONDS} s of processor time"
        else:
            reason = getattr(problem, "stderr", "") or str(problem)
        log.warning("an answer could not be compared, and counts as wrong: %s", reason[-500:])
    return AnswerScore(0.0)


CHOICE_LETTERS = "ABCDEFGHIJ"
"""By which choices are named."""
_LETTER = r"[\(\[]?\b([A-J])(?![\w'])[\)\]]?"
_ONLY_LETTER = re.compile(r"^[\(\[]?([A-J])[\)\]]?[.:,]?$", re.IGNORECASE)
_SAID = r"\b(?:answer|choice|option)\b(?:\s+is)?\s*[:=]?\s*(?:option\s+|choice\s+)?"
_SAID_LETTERS = re.compile(
    rf"(?i:{_SAID}){_LETTER}((?:\s*(?:[,/&]|\bor\b|\band\b)+\s*{_LETTER}(?!\s+[a-z]))*"
    rf"(?:\s*(?:[/&]|\bor\b|\band\b)\s*{_LETTER})?)"
)
_SMALL_LETTER = re.compile(rf"(?i:{_SAID})[\(\[]?([a-j])[\)\]]?\.?$")
"""Only at the end: "the answer is a thymine" names none."""
_FIRST_LETTER = re.compile(r"^(?:\(([A-J])\)|\[([A-J])\]|([A-J])(?:[.):]|\s+[-–—]))\s+")
_FURTHER_LETTER = re.compile(r"\(([A-J])\)(?!-)")
"""`(E)-butene` names no choice."""
_MARKS = re.compile(r"\\(?:boxed|text\w*|math\w*)\s*\{([^{}]*)\}|\*\*|[$`]")
_KEPT_CHARACTERS = 1_000
"""A choice is looked for in so many characters at the beginning and at the end of an answer."""


def choice_score(answer: str, gold: Sequence[str]) -> AnswerScore:
    """Whether the answer is the right one of several choices.

    gold: its letter first, then perhaps its text. What names two letters is wrong.
    """
    letter, *texts = gold
    bare = _without_marks(answer)
    if only := _ONLY_LETTER.match(bare):
        return AnswerScore(float(only[1].upper() == letter))
    first = _FIRST_LETTER.match(bare)
    if same_answer(answer, texts) or same_answer(bare, texts):
        return AnswerScore(1.0)
    if first and same_answer(bare[first.end() :], texts):
        return AnswerScore(float(_letters(first) == {letter}))
    return AnswerScore(float(_chosen_letters(bare) == {letter}))


def _chosen_letters(answer: str) -> set[str]:
    """The letters that an answer of several words names as its choice."""
    chosen: set[str] = set()
    for match in _SAID_LETTERS.finditer(answer):
        chosen |= {match[1], *re.findall(r"\b[A-J]\b", match[2])}
    if small := _SMALL_LETTER.search(answer):
        chosen.add(small[1].upper())
    if first := _FIRST_LETTER.match(answer):
        chosen |= _letters(first)
    return chosen | set(_FURTHER_LETTER.findall(answer)) if chosen else chosen


def _letters(match: re.Match[str]) -> set[str]:
    return {group for group in match.groups() if group}


def _without_marks(text: str) -> str:
    """The text without what only sets it, such as `**…**`, `$…$` and `\\boxed{…}`.

    Spaces are single and a long text is cut, as patterns take quadratic time over both.
    """
    text = " ".join(text.split())
    if len(text) > 2 * _KEPT_CHARACTERS:  # no word is cut: "answer: Benzene" names no B
        first, last = text[:_KEPT_CHARACTERS], text[-_KEPT_CHARACTERS:]
        text = f"{first.rpartition(' ')[0]} … {last.partition(' ')[2]}"
    while (plain := _MARKS.sub(lambda mark: mark[1] or "", text)) != text:
        text = plain
    return text.strip()


SCORERS: dict[QuestionScorer, Callable[[str, Sequence[str]], AnswerScore]] = {
    "text": text_score,
    "math": math_score,
    "choice": choice_score,
}


def check_scorer(scorer: QuestionScorer, where: str) -> None:
    """Raise ConfigurationError where what it needs is not installed. where: names the task."""
    if scorer == "math" and importlib.util.find_spec(MATH_PACKAGE) is None:
        raise ConfigurationError(
            f"{where}: `questions.scorer` is `math`, and math-verify is not installed.",
            "No rollout can be scored.",
            INSTALL_MATH,
        )
