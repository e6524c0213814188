"""The suites by name, and how a task of one becomes a folder with a `task.toml`.

Tasks are named by (suite, split, index) and are the same wherever they are written. The folder's
name holds the suite's version: when rules change, so do tasks and names. Also holds what was
measured of models before any learning (`base_rates.toml`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

import msgspec

from houston_daemon.suites import reasoning_questions
from houston_daemon.suites.file_tasks import file_task
from houston_daemon.suites.python_problems import python_problem
from houston_daemon.suites.science_games import (
    SIMPLIFICATIONS,
    WORLD_SPLITS,
    count_games,
    science_game,
)
from houston_daemon.suites.word_worlds import LEVELS, WordLevel, word_world
from houston_shared import atomic_file
from houston_shared.errors import ConfigurationError, NotFound, did_you_mean
from houston_shared.toml_file import parse_toml

SPLITS = ("train", "validation", "test")
WORDS = "words"
"""The dialect of tiny policies, and of the suites that only they can play."""


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
    dialect: str
    """The one whose contexts are that short."""
    solve: Callable[[str, int], list[dict[str, object]]] | None = None
    """split, index → calls that solve the task, one a step, as a script engine plays them; None
    where only the simulator knows them."""
    count: Callable[[str], int] | None = None
    """split → how many tasks there are, behind which the first come again; None where there is no
    end."""
    task_prefix: str = ""
    """What names of tasks begin with; empty for the suite's name."""
    warm_up_wrong: float = 0.5
    """Share of a warm-up's traces that do not solve their task: SmolLM2 then solves 5 to 30 %."""
    warm_up_at_once: int = 16
    """Rollouts of a warm-up that run together: a simulator each takes processor and memory."""

    def task_name(self, split: str, index: int) -> str:
        """Name of a task, at most 40 letters: what results are paired by."""
        return f"{self.task_prefix or self.name}-{self.version}-{split}-{index}"


_TASK = """\
name = {name}
instructions = {instructions}
environment = "{environment}"

[budget]
steps = {steps}
active_seconds = 3600
answer_tokens = {answer_tokens}
evaluations = 1

[sampling]
temperature = 1.0
top_p = 1.0
guided = false

"""
"""As reinforcement learning wants samples: from the policy's own distribution. Steps end a rollout,
not the clock: a busy machine would make a policy look worse than it is."""


def _task_text(
    suite: str, split: str, index: int, environment: str, instructions: str, answer_tokens: int
) -> str:
    return _TASK.format(
        name=json.dumps(SUITES[suite].task_name(split, index)),
        instructions=json.dumps(instructions),
        environment=environment,
        steps=SUITES[suite].steps,
        answer_tokens=answer_tokens,
    )


def _table(name: str, pairs: Mapping[str, str]) -> str:
    return f"[{name}]\n" + "".join(f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in pairs.items())


def _write_word_world(level: WordLevel, split: str, index: int, folder: Path) -> str:
    world = word_world(level, split, index)
    head = _task_text(words_suite_name(level), split, index, "word_world", world.instructions, 48)
    own = _table("word_world", {"right": world.right} if world.right else {})
    wanted_table = _table("word_world.wanted", world.wanted) if world.wanted else ""
    return head + own + _table("word_world.codes", world.codes) + wanted_table


def _solve_word_world(level: WordLevel, split: str, index: int) -> list[dict[str, object]]:
    world = word_world(level, split, index)
    calls: list[dict[str, object]] = []
    for box in world.right_boxes:
        calls += [
            {"name": "open", "arguments": {"box": box}},
            {"name": "read", "arguments": {}},
            {"name": "enter", "arguments": {"code": " ".join(world.codes[box])}},
        ]
    return calls


def words_suite_name(level: WordLevel) -> str:
    """The suite whose worlds are of a level."""
    if level.items > 1:
        return f"word-{level.name}"
    return "word-worlds" if level.name == "medium" else f"word-worlds-{level.name}"


def _word_suite(level: WordLevel) -> Suite:
    rules = "one rule" if level.places == 1 else f"{level.places} rules"
    items = "" if level.items == 1 else f"{level.items} items, each a part of the score; "
    return Suite(
        name=words_suite_name(level),
        version=1,
        about=f"{items}{level.boxes} boxes, {rules} known by experience only, for tiny policies",
        write=partial(_write_word_world, level),
        solve=partial(_solve_word_world, level),
        steps=level.steps,
        context_tokens=15 * level.steps,
        dialect=WORDS,
    )


def _write_file_task(split: str, index: int, folder: Path) -> str:
    task = file_task(split, index)
    head = _task_text("small-workstation", split, index, "small_workstation", task.instructions, 64)
    files = _table("small_workstation.files", task.files)
    return head + files + _table("small_workstation.wanted", task.expected_files)


def _write_python_problem(split: str, index: int, folder: Path) -> str:
    problem = python_problem(split, index)
    line = {"id": "0", "question": problem.question, "answers": [problem.answer]}
    text = json.dumps(line, ensure_ascii=False) + "\n"
    atomic_file.write_atomically(folder / "questions.jsonl", text.encode())
    say = "Compute the answer with python, then finish with it."
    head = _task_text("python-problems", split, index, "python", say, 96)
    return head + '[questions]\nfile = "questions.jsonl"\nsplit = "all"\n'


def _solve_python_problem(split: str, index: int) -> list[dict[str, object]]:
    problem = python_problem(split, index)
    return [
        {"name": "python", "arguments": {"code": problem.program}},
        {"name": "finish", "arguments": {"answer": problem.answer}},
    ]


_GAME_SEEDS = {"train": 0, "validation": 1_000_000, "test": 2_000_000}
"""First seed of a split's games."""
_GAME_LEVELS = 3
"""Rooms on the way to the coin; the levels take turns."""


def _write_text_game(split: str, index: int, folder: Path) -> str:
    say = "Play the game with act, in plain commands: go north, take coin."
    head = _game_text("text-games", split, index, "textworld", say)
    level, seed = index % _GAME_LEVELS + 1, _GAME_SEEDS[split] + index
    game = f'[textworld]\ngame = "coin_collector"\nlevel = {level}\nseed = {seed}\n'
    return head + game


def _write_science_game(split: str, index: int, folder: Path) -> str:
    game = science_game(split, index)
    say = "Play with act: teleport to ROOM, look around, focus on THING, move THING to BOX."
    head = _game_text("science-games", split, index, "scienceworld", say)
    return head + (
        f'[scienceworld]\ntasks = ["{game.task}"]\nvariation = {game.variation}\n'
        f'split = "{WORLD_SPLITS[split]}"\nsimplifications = ["{SIMPLIFICATIONS}"]\n'
        "first_look = false\n"
    )


def _game_text(suite: str, split: str, index: int, environment: str, instructions: str) -> str:
    """The head of a simulator's task: two of its tools, since each costs tokens."""
    text = _task_text(suite, split, index, environment, instructions, 48)
    return text.replace("[budget]", 'tools = ["act", "finish"]\n\n[budget]', 1)


_ALL = (
    *map(_word_suite, LEVELS.values()),
    Suite(
        name="small-workstation",
        version=1,
        about="files to be found, read and changed by four actions, for small language models",
        write=_write_file_task,
        solve=lambda split, index: file_task(split, index).solution,
        steps=8,
        context_tokens=400,
        dialect="chatml-calls",
    ),
    Suite(
        name="python-problems",
        version=1,
        about="questions to be computed with a code tool, for small language models",
        write=_write_python_problem,
        solve=_solve_python_problem,
        steps=6,
        context_tokens=400,
        dialect="chatml-calls",
        warm_up_wrong=0.8,
    ),
    Suite(
        name="text-games",
        version=1,
        about="a coin to be found in TextWorld, over one to three rooms, for small language models",
        write=_write_text_game,
        steps=8,
        context_tokens=400,
        dialect="chatml-calls",
        warm_up_wrong=0.8,
        warm_up_at_once=4,
    ),
    Suite(
        name="science-games",
        version=1,
        about="short games of ScienceWorld, the right thing to be found, for small language models",
        write=_write_science_game,
        count=count_games,
        steps=8,
        context_tokens=500,
        dialect="chatml-calls",
        warm_up_at_once=4,
    ),
)
SUITES = {suite.name: suite for suite in _ALL}
REASONING_GYM = "reasoning-gym:"
"""What names of suites begin with that are datasets of reasoning-gym, which are not in `SUITES`."""


def is_suite(name: str) -> bool:
    """Whether a name can only belong to a suite."""
    return name in SUITES or name.startswith(REASONING_GYM)


def find_suite(name: str) -> Suite:
    """The suite called `name`. Raises HoustonError naming those there are, and where a suite of
    reasoning-gym needs the package."""
    if suite := SUITES.get(name):
        return suite
    if name.startswith(REASONING_GYM):
        return _reasoning_gym_suite(name.removeprefix(REASONING_GYM))
    raise NotFound(
        f"There is no suite {name!r}; there are: {', '.join(SUITES)}, {REASONING_GYM}DATASET.",
        next=did_you_mean(name, SUITES),
    )


@cache
def _reasoning_gym_suite(dataset: str) -> Suite:
    about = reasoning_questions.describe_dataset(dataset)

    def write(split: str, index: int, folder: Path) -> str:
        return reasoning_questions.task_text(dataset, suite.task_name(split, index), split, index)

    def solve(split: str, index: int) -> list[dict[str, object]]:
        answer = reasoning_questions.gym_question(dataset, split, index).answer
        return [{"name": "finish", "arguments": {"answer": answer}}]

    suite = Suite(
        name=REASONING_GYM + dataset,
        version=1,
        about=about,
        write=write,
        solve=solve,
        steps=reasoning_questions.STEPS,
        context_tokens=1_000,
        dialect="chatml-calls",
        task_prefix=dataset.replace("_", "-")[:20].strip("-"),  # 40 letters with split and index
    )
    return suite


UNATTENDED = "\n[attention]\nlow_score = 0\n"
"""Of every task: hundreds that failed need nobody to look; what they gave is their run's result."""


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
        text = f"{suite.write(split, index, place)}{UNATTENDED}"
        atomic_file.write_atomically(file, text.encode())
    return file


DEFAULT_TASKS = 200
"""Tasks of a suite that are played where nobody says how many."""


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Numbered tasks of one kind: a split of a suite, or another set to evaluate."""

    suite: str
    version: int
    split: str
    write: Callable[[int, Path], Path]
    """Number of a task, folder → its `task.toml`, written below the folder."""
    count: int | None = None
    """How many there are; None where there is no end."""
    default: int = DEFAULT_TASKS
    """How many are played where nobody says."""

    def resolve_task_count(self, requested_count: int | None) -> int:
        """How many to play: as many as requested, but no more than there are."""
        count = requested_count or self.default
        return count if self.count is None else min(count, self.count)


def suite_tasks(name: str, split: str) -> TaskSource:
    """The tasks of a suite's split. Raises HoustonError for a suite that there is not."""
    suite = find_suite(name)

    def write(index: int, folder: Path) -> Path:
        return write_suite_task(name, split, index, folder)

    return TaskSource(
        name, suite.version, split, write, suite.count(split) if suite.count else None
    )


_RATES_FILE = "base_rates.toml"


class BaseRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often a model solves a suite's tasks before any learning, as measured. It helps to choose
    a suite: one is useful to a model that solves 5 to 30 % of it."""

    suite: str
    model: str
    split: str
    solved: int
    """Worlds that were solved."""
    worlds: int
    command: str
    note: str = ""


class _Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: tuple[BaseRate, ...] = ()


def base_rates() -> tuple[BaseRate, ...]:
    """All that were measured."""
    text = files(__package__).joinpath(_RATES_FILE).read_text(encoding="utf-8")
    return msgspec.convert(parse_toml(text, _RATES_FILE), _Rates).rate
