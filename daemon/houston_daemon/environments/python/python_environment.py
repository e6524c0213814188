"""The python environment: run code, look at what it printed, finish with an answer."""

import asyncio
from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.call_handling import (
    cancel_on_stop,
    early_finish_refusal,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.python.code_environment import CodeEnvironment, sandbox_of_setup
from houston_daemon.environments.python.python_tool import (
    MAX_CODE_CHARACTERS,
    MISSING,
    PythonFinished,
    PythonTool,
)
from houston_daemon.environments.questions.answer_scorers import SCORERS, AnswerScore
from houston_daemon.environments.questions.answer_scoring import same_answer
from houston_daemon.environments.questions.question_answering import (
    QuestionAnswering,
    check_questions,
)
from houston_daemon.environments.tool_arguments import Arguments, Catalog, chosen_actions
from houston_daemon.environments.typed_observation import Failed, Observation
from houston_daemon.hosts.local_host import LocalHost
from houston_shared.errors import ConfigurationError
from houston_shared.records import EVALUATION_CALL, RolloutSpec, ToolCall
from houston_shared.task import LoadedTask, Task


class PythonAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of python."""

    family: ClassVar[str] = "python"


class RunPython(PythonAction, frozen=True, kw_only=True):
    """Run Python code and see what it prints; each call starts anew and remembers nothing."""

    name: ClassVar[str] = "python"
    code: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_CODE_CHARACTERS,
            description="The whole program; the value of a bare last expression is shown.",
        ),
    ]


class Finish(PythonAction, frozen=True, kw_only=True):
    """End the task with the answer."""

    name: ClassVar[str] = "finish"
    answer: Annotated[str, Meta(max_length=1_000, description="The answer and nothing else.")] = ""


PYTHON_ACTIONS: tuple[type[PythonAction], ...] = (RunPython, Finish)


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError when the task cannot be run by python."""
    actions = chosen_actions(task, PYTHON_ACTIONS, "python")
    if task.evaluate.command:
        raise ConfigurationError(
            f"Task {task.name}: python runs no evaluator; `[questions] file` gives it questions "
            "with answers."
        )
    return Catalog(actions)


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would end every rollout of the task at once."""
    catalog(task.task)
    if absent := local_host_setup.missing_packages(task.task.python.packages):
        raise ConfigurationError(
            f"{task.file}: `python.packages` names {absent[0]!r}, which is not installed here.",
            next=MISSING,
        )
    if task.task.questions.file:
        check_questions(task)


class PythonEnvironment(CodeEnvironment):
    """See `CodeEnvironment`."""

    code_call = RunPython.name

    def __init__(self, spec: RolloutSpec, task: Task, host: LocalHost, characters: int) -> None:
        compare = {**SCORERS, "text": lambda answer, gold: AnswerScore(same_answer(answer, gold))}
        answering = (
            QuestionAnswering(spec, task, compare[task.questions.scorer], "Check it by code.")
            if task.questions.file
            else None
        )
        super().__init__(task, host, catalog(task), answering, characters)
        self._tool = PythonTool(host, task.python)

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        if call.name == EVALUATION_CALL and self._answering:
            return self._answering.unanswered(budget_status, Finish.name)
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, RunPython):
            return await cancel_on_stop(self._tool.run(arguments.code), stop)
        answer: str = call.arguments["answer"]
        if self._answering is None:
            return self._finish(answer, budget_status)
        if not answer.strip():
            return Failed(error="finish needs the answer to the question.")
        return await asyncio.to_thread(self._answering.answer, call.id, answer, budget_status)

    def _finish(self, answer: str, budget_status: BudgetStatus) -> PythonFinished:
        error = early_finish_refusal(budget_status, self._task.budget.minimum_steps)
        if error:
            return PythonFinished(success=False, error=error, answer=answer, finished=False)
        return PythonFinished(answer=answer, finished=True)


def build_environment(setup: EnvironmentSetup) -> PythonEnvironment:
    """The environment; nothing is touched before `open`."""
    return PythonEnvironment(setup.spec, setup.task, sandbox_of_setup(setup), setup.characters)
