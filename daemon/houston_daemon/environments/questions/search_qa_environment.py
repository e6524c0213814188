"""Questions answered from a local corpus: ECHO's DeepSearch (Xi et al. 2025, AgentGym-RL).

The agent searches, reads documents as numbered lines, and answers one question.
"""

import asyncio
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from houston_daemon.environments.call_handling import (
    CallInterrupted,
    ToolEnvironment,
    cancel_on_stop,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop, Undo
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.observation_boundary import numbered_lines
from houston_daemon.environments.questions.answer_scorers import SCORERS, AnswerScore
from houston_daemon.environments.questions.answer_scoring import exact_match, token_f1
from houston_daemon.environments.questions.question_answering import (
    QuestionAnswering,
    QuestionState,
    check_questions,
    resume_error,
)
from houston_daemon.environments.retrieval.corpus_documents import Document
from houston_daemon.environments.retrieval.corpus_search import Corpus
from houston_daemon.environments.retrieval.retrieval_protocol import (
    MAX_QUERY_CHARACTERS,
    Hit,
    SearchFailed,
)
from houston_daemon.environments.retrieval.searcher import retrieval_root, task_corpus
from houston_daemon.environments.tool_arguments import Arguments, Catalog, chosen_actions
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import EVALUATION_CALL, RolloutSpec, ToolCall
from houston_shared.task import LoadedTask, Task


class SearchQaAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of search_qa."""

    family: ClassVar[str] = "search_qa"


class Search(SearchQaAction, frozen=True, kw_only=True):
    """Search the corpus by words, best documents first."""

    name: ClassVar[str] = "search"
    query: Annotated[
        str, Meta(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="What to search for.")
    ]
    top_k: Annotated[int, Meta(ge=1, le=50, description="Most documents.")] = 5


class OpenDocument(SearchQaAction, frozen=True, kw_only=True):
    """Read a document from a line on."""

    name: ClassVar[str] = "open_document"
    id: Annotated[
        str, Meta(min_length=1, max_length=300, description="Document, as search names it.")
    ]
    line_number: Annotated[
        int, Meta(ge=1, le=1_000_000_000, description="First line to show, from 1.")
    ] = 1


class Answer(SearchQaAction, frozen=True, kw_only=True):
    """Give the answer, as short as it can be said; it ends the task."""

    name: ClassVar[str] = "answer"
    text: Annotated[
        str, Meta(min_length=1, max_length=1_000, description="The answer and nothing else.")
    ]


SEARCH_QA_ACTIONS: tuple[type[SearchQaAction], ...] = (Search, OpenDocument, Answer)


def catalog(task: Task) -> Catalog:
    """The task's tools. Raises ConfigurationError when the task cannot be run by search_qa."""
    actions = chosen_actions(task, SEARCH_QA_ACTIONS, "search_qa", needed=(Answer.name,))
    for key, value in (
        ("search.corpus", task.search.corpus),
        ("questions.file", task.questions.file),
    ):
        if not value:
            raise ConfigurationError(f"Task {task.name}: search_qa needs the key `{key}`.")
    return Catalog(actions)


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for anything that would end every rollout of the task at once."""
    catalog(task.task)
    check_questions(task)


class Documents(Observation, frozen=True, kw_only=True):
    """Documents that a search found."""

    kind: ClassVar[str] = "search"
    query: str
    requested_top_k: int
    total_results: int = 0
    documents: tuple[Hit, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Of each document only its name: the text already holds the rest."""
        return {**super().fields(), "documents": [hit.id for hit in self.documents]}


class DocumentWindow(Observation, frozen=True, kw_only=True):
    """Numbered lines of one document."""

    kind: ClassVar[str] = "document"
    bulk: ClassVar[tuple[str, ...]] = ("content",)
    id: str
    title: str
    first_line: int
    last_line: int
    total_lines: int
    content: str


@render.register
def _(result: Documents) -> Text:
    if not result.documents:
        return Text(f"No document has any word of {result.query!r}; use others.")
    noun = "document" if result.total_results == 1 else "documents"
    head = f"The best {result.total_results} {noun} for {result.query!r}:"
    body = "\n".join(_entry(number, hit) for number, hit in enumerate(result.documents, 1))
    return Text(head, body, "ask for a smaller top_k")


def _entry(number: int, hit: Hit) -> str:
    return f"{number}. [{hit.id}] {hit.title}\n   {hit.snippet}"


@render.register
def _(result: DocumentWindow) -> Text:
    more = f"; open_document with line_number={result.last_line + 1} goes on"
    goes_on = more if result.last_line < result.total_lines else ""
    span = f"lines {result.first_line}-{result.last_line} of {result.total_lines}"
    return Text(
        f"[{result.id}: {result.title}, {span}{goes_on}]", result.content, "a later line_number"
    )


_WIDTH = 200
"""A passage of a corpus is often one line; it is broken here, at a space where there is one."""
_LINES = 100


def lines(text: str) -> list[str]:
    """The text's lines, long ones broken; empty ones at the ends are left out."""
    broken_lines: list[str] = []
    for line in text.strip("\n").splitlines():
        broken = textwrap.wrap(line, _WIDTH, break_on_hyphens=False) if len(line) > _WIDTH else []
        broken_lines += broken or [line]
    return broken_lines


def window(document: Document, first: int, characters: int) -> DocumentWindow:
    """As many numbered lines from `first` as fit; the last ones when it lies beyond the end."""
    all_lines = lines(document.text)
    first = min(first, max(1, len(all_lines)))
    lines_shown = numbered_lines(all_lines[first - 1 : first - 1 + _LINES], first, 4, characters)
    return DocumentWindow(
        id=document.id,
        title=document.title,
        first_line=first,
        last_line=first + len(lines_shown) - 1,
        total_lines=len(all_lines),
        content="\n".join(lines_shown),
    )


_HEAD = 300
"""Characters that the head of a document's window may take."""


class SearchQa(ToolEnvironment):
    """One question for one rollout. See `environment_protocol.Environment`."""

    undo: Undo = "stateless"

    def __init__(self, spec: RolloutSpec, task: Task, characters: int) -> None:
        super().__init__(characters, scores=True)
        self._spec = spec
        self._catalog = catalog(task)
        self._corpus: Corpus = task_corpus(spec, task)
        compare = {**SCORERS, "text": _compare_answers}[task.questions.scorer]
        self._answering = QuestionAnswering(spec, task, compare, "Search and read first.")
        self.tools = self._catalog.tools

    async def open(self, begun: bool = False) -> None:
        """Choose the question and index the corpus, or find both again.

        Raises HoustonError when the set or the corpus cannot be read, or when a rollout that has
        steps finds its question or its corpus gone.
        """
        state = await asyncio.to_thread(self._answering.find, begun)
        index = retrieval_root(self._spec) / "corpora" / state.index if state else None
        if index is None or not self._corpus.use(index):
            index = await self._prepare_index(state)
        if state is None:
            state = await asyncio.to_thread(self._answering.begin, index.name)
        self.brief = f"Question: {state.question.question}"

    def _check(self, call: ToolCall) -> ToolCall:
        return self._catalog.check(call)

    def _error_text(self, call: ToolCall, problem: Exception) -> str:
        return str(problem) if isinstance(problem, SearchFailed | CallInterrupted) else ""

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        if call.name == EVALUATION_CALL:
            return self._answering.unanswered(budget_status, Answer.name)
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, Search):
            return await cancel_on_stop(self._search(arguments), stop)
        if isinstance(arguments, OpenDocument):
            return await cancel_on_stop(self._read(arguments), stop)
        text = call.arguments["text"]
        return await asyncio.to_thread(self._answering.answer, call.id, text, budget_status)

    async def _search(self, call: Search) -> Observation:
        hits = await self._corpus.search(call.query, call.top_k)
        return Documents(
            query=call.query,
            requested_top_k=call.top_k,
            total_results=len(hits),
            documents=tuple(hits),
        )

    async def _read(self, call: OpenDocument) -> Observation:
        document = await self._corpus.document(call.id)
        if document is None:
            return Failed(error=f"There is no document {call.id!r}; search gives their names.")
        return window(document, call.line_number, self._characters - _HEAD)

    async def _prepare_index(self, state: QuestionState | None) -> Path:
        try:
            index = await self._corpus.prepare()
        except SearchFailed as problem:
            raise HoustonError(str(problem), "The rollout cannot start.") from None
        if state is not None and index.name != state.index:
            raise resume_error("its corpus has changed since it began")
        return index


def _compare_answers(answer: str, gold: Sequence[str]) -> AnswerScore:
    return AnswerScore(exact_match(answer, gold), token_f1(answer, gold))


def build_environment(setup: EnvironmentSetup) -> SearchQa:
    """The environment; nothing is touched before `open`."""
    return SearchQa(setup.spec, setup.task, setup.characters)
