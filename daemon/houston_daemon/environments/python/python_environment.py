"""The python environment: run code, look at what it printed, finish with an answer."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.call_handling import (
    CallInterrupted,
    named_failure,
    observed,
    result_since,
    too_early,
    unless_stopped,
)
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.python.python_tool import (
    MISSING,
    MOST_CODE,
    PythonFinished,
    PythonTool,
)
from houston_daemon.environments.questions.answer_scoring import same_answer
from houston_daemon.environments.questions.question_answering import (
    SCORE,
    AnswerScore,
    QuestionAnswering,
    check_questions,
)
from houston_daemon.environments.tool_arguments import Arguments, Catalog
from houston_daemon.environments.typed_observation import Failed, Interrupted, Observation
from houston_daemon.hosts.local_host import LocalHost
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
    actions: dict[str, type[Arguments]] = {one.name: one for one in PYTHON_ACTIONS}
    for name in task.tools:
        if name not in actions:
            raise ConfigurationError(
                f"Task {task.name}: `tools` names {name!r}; python has {', '.join(actions)}."
            )
    if task.evaluate.command:
        raise ConfigurationError(
            f"Task {task.name}: python runs no evaluator; `[questions] file` gives it questions "
            "with answers."
        )
    return Catalog({n: one for n, one in actions.items() if not task.tools or n in task.tools})


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


class PythonEnvironment:
    """A code tool, and perhaps a question, for one rollout. See `protocol.Environment`."""

    def __init__(self, spec: RolloutSpec, task: Task, host: LocalHost, characters: int) -> None:
        self._task = task
        self._host = host
        self._characters = characters
        self._catalog = catalog(task)
        self._tool = PythonTool(host, task.python)
        asks = bool(task.questions.file)
        self._answering = (
            QuestionAnswering(spec, task, _compare_answers, "Check it by code.") if asks else None
        )
        self.tools: Sequence[ToolSpec] = self._catalog.tools
        self.brief = ""

    async def open(self, begun: bool = False) -> None:
        """Try the sandbox; choose the question, or find it again. Raises HoustonError."""
        await self._host.prepare(None)
        if self._answering is None:
            return
        state = await asyncio.to_thread(self._answering.find, begun)
        if state is None:
            state = await asyncio.to_thread(self._answering.begin)
        self.brief = f"Question: {state.question.question}"

    def check(self, call: ToolCall) -> ToolCall:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        if self._answering and call.name == SCORE and not call.arguments and not call.error:
            return call
        return self._catalog.check(call)

    def deadline(self, call: ToolCall) -> float:
        """Nothing here sleeps."""
        return 0.0

    async def act(self, call: ToolCall, standing: Standing, stop: Stop) -> ToolResult:
        """Run one call; what goes wrong is an observation."""
        begun = time.monotonic()
        call = self.check(call)
        return await self._result(call, await self._observe(call, standing, stop), begun)

    async def recover(self, intent: CallIntent, standing: Standing, stop: Stop) -> ToolResult:
        """The same as `act`, but for code that may have reached the network."""
        call = self.check(intent.call)
        if call.error or call.name != RunPython.name or not self._task.mapped.network:
            return await self.act(call, standing, stop)
        error = "The daemon went down while the code ran."
        return await self._result(call, Interrupted(error=error, now=""), time.monotonic())

    async def close_step(self, step: int) -> Closing:
        """Nothing changes but the state, which is on disk."""
        return Closing()

    async def close(self, ended: bool) -> None:
        """Let go of the host."""
        if ended:
            await self._host.destroy_terminals()
        await self._host.close()

    async def _result(self, call: ToolCall, observation: Observation, begun: float) -> ToolResult:
        met = await self._host.limits_met()
        return await result_since(begun, call, observation, self._characters, met)

    async def _observe(self, call: ToolCall, standing: Standing, stop: Stop) -> Observation:
        def words(problem: Exception) -> str:
            if isinstance(problem, CallInterrupted):
                return str(problem)
            if isinstance(problem, HoustonError):
                log.exception("%s", call.name)
                return named_failure(call, problem)
            return ""

        return await observed(call, lambda: self._do(call, standing, stop), words, log)

    async def _do(self, call: ToolCall, standing: Standing, stop: Stop) -> Observation:
        if call.name == SCORE and self._answering:
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
