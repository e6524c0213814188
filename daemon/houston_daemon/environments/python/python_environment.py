"""The python environment: run code, look at what it printed, finish with an answer."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.call_handling import (
    SCORE_CALL,
    CallInterrupted,
    ToolEnvironment,
    named_failure,
    too_early,
    unless_stopped,
)
from houston_daemon.environments.environment_protocol import Standing, Stop, Undo
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.python.python_tool import (
    MISSING,
    MOST_CODE,
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
from houston_daemon.environments.typed_observation import Failed, Interrupted, Observation
from houston_daemon.hosts.local_host import LocalHost
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import CallIntent, RolloutSpec, ToolCall, ToolResult
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
            max_length=MOST_CODE,
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


log = logging.getLogger(__name__)


class PythonEnvironment(ToolEnvironment):
    """A code tool, and perhaps a question, for one rollout. See `protocol.Environment`."""

    def __init__(self, spec: RolloutSpec, task: Task, host: LocalHost, characters: int) -> None:
        asks = bool(task.questions.file)
        super().__init__(characters, scores=asks, host=host)
        self._task = task
        self._host: LocalHost = host
        self._catalog = catalog(task)
        self._tool = PythonTool(host, task.python)
        compare = {**SCORERS, "text": _compare_answers}
        self._answering = (
            QuestionAnswering(spec, task, compare[task.questions.scorer], "Check it by code.")
            if asks
            else None
        )
        self.tools = self._catalog.tools
        # Each call is a process of its own in a scratch folder; what it sent out stays sent.
        self.undo: Undo = "none" if task.mapped.network else "stateless"

    async def open(self, begun: bool = False) -> None:
        """Try the sandbox; choose the question, or find it again. Raises HoustonError."""
        await self._host.prepare(None)
        if self._answering is None:
            return
        state = await asyncio.to_thread(self._answering.find, begun)
        if state is None:
            state = await asyncio.to_thread(self._answering.begin)
        self.brief = f"Question: {state.question.question}"

    async def recover(self, intent: CallIntent, standing: Standing, stop: Stop) -> ToolResult:
        """The same as `act`, but for code that may have reached the network."""
        call = self.check(intent.call)
        if call.error or call.name != RunPython.name or not self._task.mapped.network:
            return await self.act(call, standing, stop)
        error = "The daemon went down while the code ran."
        return await self._result(call, Interrupted(error=error, now=""), time.monotonic())

    def _check(self, call: ToolCall) -> ToolCall:
        return self._catalog.check(call)

    def _error_text(self, call: ToolCall, problem: Exception) -> str:
        if isinstance(problem, CallInterrupted):
            return str(problem)
        if isinstance(problem, HoustonError):
            log.exception("%s", call.name)
            return named_failure(call, problem)
        return ""

    async def _do(self, call: ToolCall, standing: Standing, stop: Stop) -> Observation:
        if call.name == SCORE_CALL and self._answering:
            return self._answering.unanswered(standing, Finish.name)
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, RunPython):
            return await unless_stopped(self._tool.run(arguments.code), stop)
        answer: str = call.arguments["answer"]
        if self._answering is None:
            return self._finish(answer, standing)
        if not answer.strip():
            return Failed(error="finish needs the answer to the question.")
        return await asyncio.to_thread(self._answering.answer, call.id, answer, standing)

    def _finish(self, answer: str, standing: Standing) -> PythonFinished:
        error = too_early(standing, self._task.budget.minimum_steps)
        if error:
            return PythonFinished(success=False, error=error, answer=answer, finished=False)
        return PythonFinished(answer=answer, finished=True)


def _compare_answers(answer: str, gold: Sequence[str]) -> AnswerScore:
    return AnswerScore(same_answer(answer, gold))


def build_environment(setup: EnvironmentSetup) -> PythonEnvironment:
    """The environment; nothing is touched before `open`."""
    leased = tuple(setup.gpus.get(LOCAL_HOST, ()))
    host = local_host_setup.local_host(setup.spec, setup.task, setup.owner, gpus=leased)
    return PythonEnvironment(setup.spec, setup.task, host, setup.characters)
