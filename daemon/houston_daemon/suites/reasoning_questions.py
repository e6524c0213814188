"""Questions of reasoning-gym as tasks of suites: each of its datasets is a suite of the same name.

The package makes a question from a seed, and each split has its own seeds. A dataset with few
questions may repeat one for different seeds, so splits may share content, unlike in other suites.
The package is imported by a child process, in which the order of sets is fixed.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
from functools import cache
from typing import Any

import msgspec

from houston_daemon.environments.questions import reasoning_gym_child
from houston_daemon.environments.questions.reasoning_gym_environment import check_package
from houston_shared.errors import HoustonError, NotFound

STEPS = 4
"""Most steps: one answers, the others are for answers that are no call."""
_FIRST_SEEDS = {"train": 0, "validation": 1_000_000_000, "test": 1_500_000_000}
_TASK = """\
name = {name}
instructions = {question}
environment = "reasoning_gym"

[budget]
steps = {steps}
active_seconds = 3600
answer_tokens = 1024
evaluations = 1

[sampling]
temperature = 1.0
top_p = 1.0
guided = false

[reasoning_gym]
dataset = {dataset}
seed = {seed}
"""


class GymQuestion(msgspec.Struct, frozen=True):
    """What the package says: a question, or what a dataset is."""

    question: str = ""
    answer: str = ""
    """One right answer, which a few datasets do not have."""
    about: str = ""
    unknown: tuple[str, ...] = ()
    """All datasets, where the one that was asked for is none."""
    error: str = ""


class _QuestionMaker:
    """The child that makes questions; it ends with this process, whose end closes its stdin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", reasoning_gym_child.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONHASHSEED": "0"},
        )
        atexit.register(self._process.kill)

    def ask(self, request: dict[str, Any]) -> GymQuestion:
        """Raises HoustonError where the child is no more."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            with self._lock:
                stdin.write(json.dumps(request).encode() + b"\n")
                stdin.flush()
                return msgspec.json.decode(stdout.readline(), type=GymQuestion)
        except (OSError, msgspec.MsgspecError):
            _question_maker.cache_clear()
            raise HoustonError(
                f"reasoning-gym makes no questions: its process ended ({self._process.poll()}).",
                next='python -c "import reasoning_gym"',
            ) from None


@cache
def _question_maker() -> _QuestionMaker:
    return _QuestionMaker()


def describe_dataset(dataset: str) -> str:
    """What a dataset is, in a line for people.

    Raises ConfigurationError where the package is missing, HoustonError for a name that is none.
    """
    check_package(f"The suite reasoning-gym:{dataset}")
    answer = _question_maker().ask({"dataset": dataset})
    if answer.unknown:
        raise NotFound(
            f"reasoning-gym has no dataset {dataset!r}; it has: {', '.join(answer.unknown)}."
        )
    return f"{answer.about.strip().partition(chr(10))[0].rstrip('.')}, by reasoning-gym"


def gym_question(dataset: str, split: str, index: int) -> GymQuestion:
    """A question with its answer. Raises HoustonError where it cannot be made."""
    request = {"dataset": dataset, "settings": {}, "seed": _FIRST_SEEDS[split] + index}
    question = _question_maker().ask(request)
    if question.error:
        raise HoustonError(f"reasoning-gym makes no question of {dataset}: {question.error}.")
    return question


def task_text(dataset: str, name: str, split: str, index: int) -> str:
    """The text of `task.toml`; the question is its instructions."""
    return _TASK.format(
        name=_toml_text(name),
        question=_toml_text(gym_question(dataset, split, index).question),
        steps=STEPS,
        dataset=_toml_text(dataset),
        seed=_FIRST_SEEDS[split] + index,
    )


def _toml_text(text: str) -> str:
    """A text as TOML writes it: as JSON does, but that halves of surrogate pairs are none of it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
