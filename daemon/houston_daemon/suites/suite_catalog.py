"""The suites by name, and how a task of one becomes a folder with a `task.toml`.

Tasks are named by (suite, split, index) and are the same wherever they are written. The folder's
name holds the suite's version: other rules, other tasks, other names.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from houston_daemon.suites.word_worlds import LEVELS, WordLevel, word_world
from houston_shared import atomic_file
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Suite:
    """A family of generated tasks."""

    name: str
    version: int
    """Raised when a task of the same split and index would be another."""
    about: str
    """One line for people."""
    write: Callable[[str, int, Path], str]
    """split, index, folder → the text of `task.toml`; further files go into the folder."""
    steps: int
    """Most steps of a rollout."""
    context_tokens: int
    """About how long a context gets, in tokens of the model that it is for."""
    dialect: str = ""
    """The one that its policies write, where it is not any."""

    def task_name(self, split: str, index: int) -> str:
        """Name of a task, at most 40 letters: what results are paired by."""
        return f"{self.name}-{self.version}-{split}-{index}"


_WORDS_TASK = """\
name = {name}
instructions = {instructions}
environment = "word_world"

[budget]
steps = {steps}
active_seconds = 600
answer_tokens = 48
evaluations = 1

[sampling]
temperature = 1.0
top_p = 1.0
guided = false

[word_world]
right = {right}

[word_world.codes]
{codes}
"""


def _write_word_world(level: WordLevel, split: str, index: int, folder: Path) -> str:
    world = word_world(level, split, index)
    suite = SUITES[_words_name(level)]
    return _WORDS_TASK.format(
        name=json.dumps(suite.task_name(split, index)),
        instructions=json.dumps(world.instructions),
        steps=suite.steps,
        right=json.dumps(world.right),
        codes="\n".join(f"{box} = {json.dumps(code)}" for box, code in world.codes.items()),
    )


def _words_name(level: WordLevel) -> str:
    return "word-worlds" if level.name == "medium" else f"word-worlds-{level.name}"


def _word_suite(level: WordLevel) -> Suite:
    rules = "one rule" if level.places == 1 else f"{level.places} rules"
    return Suite(
        name=_words_name(level),
        version=1,
        about=f"{level.boxes} boxes, {rules} known by experience only, for tiny policies",
        write=partial(_write_word_world, level),
        steps=8,
        context_tokens=120,
        dialect="words",
    )


SUITES = {suite.name: suite for suite in map(_word_suite, LEVELS.values())}


def find_suite(name: str) -> Suite:
    """The suite called `name`. Raises HoustonError naming those there are."""
    if suite := SUITES.get(name):
        return suite
    raise HoustonError(
        f"There is no suite {name!r}; there are: {', '.join(SUITES)}.", code=ExitCode.USAGE
    )


def write_suite_task(name: str, split: str, index: int, folder: Path) -> Path:
    """Write a task below `folder`, unless it is there; the path of its `task.toml`.

    split: one of SPLITS. Raises HoustonError for a suite, ConfigurationError for a split or an
    index that is none, and OSError.
    """
    suite = find_suite(name)
    if split not in SPLITS or index < 0:
        raise ConfigurationError(
            f"{name} has no task {index} of the split {split!r}; splits: {', '.join(SPLITS)}."
        )
    place = folder / suite.task_name(split, index)
    file = place / "task.toml"
    if not file.is_file():
        place.mkdir(parents=True, exist_ok=True)
        text = suite.write(split, index, place)
        atomic_file.write_atomically(file, text.encode())
    return file
