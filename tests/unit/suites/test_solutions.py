"""Every generated task can be solved, by the calls that it comes with, and splits share nothing."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_daemon.suites.file_tasks import KINDS, PLACES, THINGS, file_task
from houston_daemon.suites.python_problems import python_problem
from houston_daemon.suites.suite_catalog import SPLITS, SUITES, write_suite_task
from houston_shared.records import RolloutSpec, ToolCall
from houston_shared.task import load_task

IN_MEMORY = [name for name, suite in SUITES.items() if suite.solve and name != "python-problems"]
"""`python` needs a sandbox; its programs are run below."""
GOES_ON = BudgetStatus(1, 7, 100.0, 0)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", IN_MEMORY)
async def test_its_calls_solve_a_task(tmp_path: Path, name: str, split: str) -> None:
    suite = SUITES[name]
    for index in range(12):
        loaded = load_task(write_suite_task(name, split, index, tmp_path))
        spec = RolloutSpec(rollout="r", task=loaded.record(), engine="x", engine_settings={})
        world = make_environment(spec, loaded.task)
        assert suite.solve is not None
        calls = suite.solve(split, index)
        results = [
            await world.act(ToolCall(id=f"{step}.0", **call), GOES_ON, Stop())  # type: ignore[arg-type]
            for step, call in enumerate(calls, 1)
        ]
        assert all(result.success for result in results), (index, results)
        assert results[-1].fields["overall_score"] == 100.0, (index, results[-1])
        assert len(calls) <= suite.steps


@pytest.mark.parametrize("split", SPLITS)
def test_a_program_prints_the_answer(split: str) -> None:
    for index in range(30):
        problem, said = python_problem(split, index), io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(problem.program, {})  # noqa: S102 it is ours
        assert said.getvalue().strip() == problem.answer, problem


def test_no_sentence_and_no_first_number_of_a_split_is_in_another() -> None:
    sentences, asked = {}, {}
    for split in SPLITS:
        problems = [python_problem(split, index).question for index in range(200)]
        sentences[split] = {re.sub(r"\d+", "#", text) for text in problems}
        asked[split] = set(problems)
    for some, others in (("train", "test"), ("train", "validation"), ("test", "validation")):
        assert not sentences[some] & sentences[others] and not asked[some] & asked[others]
        assert not set(PLACES[some]) & set(PLACES[others])
        assert not set(THINGS[some]) & set(THINGS[others])


def test_kinds_of_file_tasks_take_turns() -> None:
    assert [file_task("test", index).kind for index in range(8)] == [*KINDS, *KINDS]
