"""The research environment: think, search, code and answer, the four actions of a flow's planner.

It combines existing parts: the code tool of `python`, the search of the workstation, and the
questions of a set. Without a set the instructions are the question, and an answer ends the rollout
without a score (`houston ask`).
"""

import asyncio
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.call_handling import (
    cancel_on_stop,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.python.code_environment import CodeEnvironment, sandbox_of_setup
from houston_daemon.environments.python.python_tool import MAX_CODE_CHARACTERS, PythonTool
from houston_daemon.environments.questions.answer_scorers import (
    SCORERS,
    AnswerScore,
    text_score,
)
from houston_daemon.environments.questions.hidden_tests import count_passed
from houston_daemon.environments.questions.question_answering import (
    QuestionAnswering,
    check_questions,
)
from houston_daemon.environments.retrieval.retrieval_protocol import MAX_QUERY_CHARACTERS
from houston_daemon.environments.retrieval.searcher import Searcher, make_searcher
from houston_daemon.environments.tool_arguments import Arguments, Catalog, chosen_actions
from houston_daemon.environments.typed_observation import (
    Failed,
    Observation,
    Text,
    render,
)
from houston_daemon.environments.workstation.search_actions import SearchActions
from houston_daemon.environments.workstation_actions import WebSearch
from houston_daemon.hosts.local_host import LocalHost
from houston_shared.errors import ConfigurationError
from houston_shared.records import EVALUATION_CALL, RolloutSpec, ToolCall
from houston_shared.task import LoadedTask, Task

SEARCH_HITS = 5
"""Most hits of one search."""


class ResearchAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of research."""

    family: ClassVar[str] = "research"


class Think(ResearchAction, frozen=True, kw_only=True):
    """Put together what was found, or plan; nothing is done."""

    name: ClassVar[str] = "think"
    text: Annotated[str, Meta(min_length=1, max_length=4_000, description="The thought.")]


class Search(ResearchAction, frozen=True, kw_only=True):
    """Search documents by a few telling words, best first."""

    name: ClassVar[str] = "search"
    query: Annotated[
        str, Meta(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="What to search for.")
    ]


class RunCode(ResearchAction, frozen=True, kw_only=True):
    """Run a whole Python program and see what it prints; it remembers nothing of the one before."""

    name: ClassVar[str] = "code"
    code: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_CODE_CHARACTERS,
            description="The program; the value of a bare last expression is shown.",
        ),
    ]


class Answer(ResearchAction, frozen=True, kw_only=True):
    """Give the answer, which ends the task."""

    name: ClassVar[str] = "answer"
    text: Annotated[
        str,
        Meta(
            min_length=1, max_length=MAX_CODE_CHARACTERS, description="The answer and nothing else."
        ),
    ]


RESEARCH_ACTIONS: tuple[type[ResearchAction], ...] = (Think, Search, RunCode, Answer)


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError when the task cannot be run by research."""
    actions = chosen_actions(task, RESEARCH_ACTIONS, "research", needed=(Answer.name,))
    if task.evaluate.command:
        raise ConfigurationError(
            f"Task {task.name}: research runs no evaluator; `[questions] file` gives it questions "
            "with answers."
        )
    return Catalog(actions)


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would end every rollout of the task at once."""
    catalog(task.task)
    if task.task.questions.file:
        check_questions(task, runs_tests=True)


class Thought(Observation, frozen=True, kw_only=True):
    """A thought, which does nothing."""

    kind: ClassVar[str] = "think"


class GivenAnswer(Observation, frozen=True, kw_only=True):
    """The answer of a task that asks no question of a set."""

    kind: ClassVar[str] = "answer"
    answer: str
    finished: bool = True


@render.register
def _(result: Thought) -> Text:
    return Text("(noted)")


@render.register
def _(result: GivenAnswer) -> Text:
    return Text("The answer is taken.")


class ResearchEnvironment(CodeEnvironment):
    """Search, code and a question for one rollout. See `CodeEnvironment`."""

    code_call = RunCode.name

    def __init__(
        self, spec: RolloutSpec, task: Task, host: LocalHost, searcher: Searcher, characters: int
    ) -> None:
        compare = SCORERS.get(task.questions.scorer, text_score)
        answering = (
            QuestionAnswering(spec, task, compare, "Search or compute first.")
            if task.questions.file
            else None
        )
        super().__init__(task, host, catalog(task), answering, characters)
        self._search = SearchActions(searcher)
        absent = local_host_setup.missing_packages(task.python.packages)
        self._packages = tuple(name for name in task.python.packages if name not in absent)
        tool = msgspec.structs.replace(task.python, packages=self._packages)
        self._tool = PythonTool(host, tool)

    async def open(self, begun: bool = False) -> None:
        """See `CodeEnvironment.open`; also tell which packages there are."""
        await super().open(begun)
        if self._packages and any(tool.name == RunCode.name for tool in self.tools):
            packages = f"(Code may import {', '.join(self._packages)}.)"
            self.brief = "\n\n".join(filter(None, (self.brief, packages)))

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        if call.name == EVALUATION_CALL and self._answering:
            return self._answering.unanswered(budget_status, Answer.name)
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, Think):
            return Thought()
        if isinstance(arguments, Search):
            query = WebSearch(query=arguments.query, top_k=SEARCH_HITS)
            return await self._search.act(query, stop)
        if isinstance(arguments, RunCode):
            return await cancel_on_stop(self._tool.run(arguments.code), stop)
        return await self._take_answer(call, budget_status)

    async def _take_answer(self, call: ToolCall, budget_status: BudgetStatus) -> Observation:
        text: str = call.arguments["text"]
        if self._answering is not None:
            score = await self._run_hidden_tests(call.id, text)
            return await asyncio.to_thread(
                self._answering.answer, call.id, text, budget_status, score
            )
        least = self._task.budget.minimum_steps
        if budget_status.step < least:
            return Failed(error=f"An answer is refused before step {least}.")
        return GivenAnswer(answer=text)

    async def _run_hidden_tests(self, call: str, program: str) -> AnswerScore | None:
        """The score of a program by the hidden tests; None for a question that has none, and for a
        call that was answered before a restart."""
        assert self._answering is not None
        state = self._answering.now
        hidden = state.question.tests
        if self._task.questions.scorer != "tests" or not hidden.cases or call in state.answers:
            return None
        passed = await count_passed(self._host, program, hidden)
        return AnswerScore(float(passed == len(hidden.cases)))


def build_environment(setup: EnvironmentSetup) -> ResearchEnvironment:
    """The environment; nothing is touched before `open`."""
    host = sandbox_of_setup(setup)
    searcher = make_searcher(setup.spec, setup.task)
    return ResearchEnvironment(setup.spec, setup.task, host, searcher, setup.characters)
