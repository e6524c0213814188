"""Imperfect scripted agents for the suites of language models; a warm-up starts with their traces.

An agent knows a task's solution. Now and then it makes a mistake that no error shows (it copies
another number, computes something else, gives up), or first tries a call that fails. So a model
warmed up on its traces knows the calls, succeeds now and then, and has faults that rewards can
tell. Everything follows from the task and a seed.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from houston_daemon.experiments.experiment_tasks import read_walkthrough
from houston_daemon.experiments.scripted_endpoint import (
    ChatHistory,
    ScriptedSpecs,
    ScriptedTurn,
)
from houston_daemon.suites.file_tasks import FileTask, file_task
from houston_daemon.suites.python_problems import python_problem
from houston_daemon.suites.science_games import ScienceWays, science_game
from houston_shared.records import RolloutSpec
from houston_shared.terminal_log_files import rollout_folder

Call = dict[str, Any]
Calls = list[Call]


@dataclass(frozen=True, slots=True)
class AgentHabits:
    """How imperfect an agent is."""

    wrong: float = 0.5
    """How often it does not solve its task, by a fault that no error shows."""
    errors: float = 0.25
    """How often a step comes behind one that brings nothing: a call that fails."""


@dataclass(frozen=True, slots=True)
class PlayChoices:
    """What an agent may do in one task."""

    solution: Calls
    faults: Sequence[Calls]
    """Whole ways that do not solve it."""
    mistakes: Sequence[Call]
    """Calls that bring nothing, before any other."""


def drawn_calls(
    choices: PlayChoices, source: random.Random, habits: AgentHabits, steps: int
) -> Calls:
    """One trace: its calls, one a step, at most `steps`."""
    plan = source.choice(choices.faults) if source.random() < habits.wrong else choices.solution
    calls: Calls = []
    for index, call in enumerate(plan):
        spare = steps - len(calls) - (len(plan) - index)
        if spare > 0 and source.random() < habits.errors:
            calls.append(source.choice(choices.mistakes))
        calls.append(call)
    return calls[:steps]


def call(name: str, **arguments: str) -> Call:
    """A call as scripts have it."""
    return {"name": name, "arguments": arguments}


FINISH = call("finish")


def file_choices(split: str, index: int, spec: RolloutSpec | None = None) -> PlayChoices:
    """Choices in `small-workstation`: another number, the whole line, another file, nothing."""
    task = file_task(split, index)
    before = task.solution[:-2]
    faults = [[*before, write, FINISH] for write in wrong_writes(task)]
    faults.append([*before, FINISH])
    return PlayChoices(task.solution, faults, failing_calls(task))


def wrong_writes(task: FileTask) -> Calls:
    """What might be written instead, each as one call: another text, or into another file."""
    ((path, text),) = task.expected_files.items()
    others = {line.split()[1] for line in task.files.values()} - set(text.split())
    words = [*sorted(others), *(["done"] if task.kind == "write" else task.files.values())]
    writes = [call("write", path=path, text=word) for word in words if word != text]
    return [*writes, call("write", path=f"my_{path}", text=text)]


def failing_calls(task: FileTask) -> Calls:
    """Calls that bring nothing."""
    ((path, text),) = task.expected_files.items()
    return [call("read", path="notes.txt"), call("open", path=path), call("search", text=text)]


def python_choices(split: str, index: int, spec: RolloutSpec | None = None) -> PlayChoices:
    """Choices in `python-problems`: another question's program, or a guess; broken programs come
    first."""
    problem = python_problem(split, index)
    run = call("python", code=problem.program)
    solution = [run, call("finish", answer=problem.answer)]
    faults = [
        [call("python", code=program), call("finish", answer=answer)]
        for program, answer in problem.others
        if answer != problem.answer
    ]
    faults.append([run, call("finish", answer=problem.answer[::-1] + "1")])
    broken = (problem.program[:-1], problem.program.replace("print", "show", 1))
    return PlayChoices(solution, faults, [call("python", code=code) for code in broken])


def text_choices(split: str, index: int, spec: RolloutSpec | None = None) -> PlayChoices:
    """Choices in `text-games`: the agent gives up midway, and says what the game does not know."""
    assert spec is not None, "the walkthrough lies in the rollout's folder"
    folder = rollout_folder(Path(spec.host_root), spec.rollout) / "textworld"
    way = [call("act", action=command) for command in read_walkthrough(folder)]
    faults = [[*way[:length], FINISH] for length in range(len(way))]
    mistakes = ("search the room", "walk on", "open coin")
    return PlayChoices(way, faults, [call("act", action=words) for words in mistakes])


class ScienceChoices:
    """Choices in `science-games`: a wrong object. Keeps a simulator open."""

    def __init__(self) -> None:
        self._ways: ScienceWays | None = None

    def __call__(self, split: str, index: int, spec: RolloutSpec | None = None) -> PlayChoices:
        """The choices of one game."""
        self._ways = self._ways or ScienceWays()
        way = self._ways.way(science_game(split, index))
        calls = [call("act", action=command) for command in way.solution]
        last = next(at for at, command in enumerate(way.solution) if command.startswith("focus"))
        faults = [
            [*calls[:last], call("act", action=f"focus on {thing}"), FINISH] for thing in way.others
        ]
        faults.append([*calls[:last], FINISH])
        mistakes = ("search the room", "find the animal", "open box")
        return PlayChoices(calls, faults, [call("act", action=words) for words in mistakes])


Choose = Callable[[str, int, RolloutSpec | None], PlayChoices]


def suite_choices() -> dict[str, Choose]:
    """By suite, the function that finds an agent's choices."""
    return {
        "small-workstation": file_choices,
        "python-problems": python_choices,
        "text-games": text_choices,
        "science-games": ScienceChoices(),
    }


class ImperfectAgent:
    """Plays a suite's rollouts, as `ScriptedEndpoint` asks. See the module."""

    def __init__(
        self, suite: str, steps: int, specs: ScriptedSpecs, habits: AgentHabits, seed: int
    ) -> None:
        self._choose = suite_choices()[suite]
        self._steps = steps
        self._specs = specs
        self._habits = habits
        self._seed = seed
        self._plans: dict[str, Calls] = {}
        self._lock = threading.Lock()

    def __call__(self, chat: ChatHistory) -> ScriptedTurn:
        """The next step; behind the last one of its plan it finishes."""
        with self._lock:
            if chat.rollout not in self._plans:
                self._plans[chat.rollout] = self._plan(self._specs.spec_of(chat))
            plan = self._plans[chat.rollout]
        next_call = plan[chat.step - 1] if chat.step <= len(plan) else FINISH
        return ScriptedTurn("", next_call["name"], next_call["arguments"])

    def _plan(self, spec: RolloutSpec) -> Calls:
        _, split, index = spec.task.name.rsplit("-", 2)
        source = random.Random(f"{self._seed}/{spec.task.name}")
        choices = self._choose(split, int(index), spec)
        return drawn_calls(choices, source, self._habits, self._steps)
