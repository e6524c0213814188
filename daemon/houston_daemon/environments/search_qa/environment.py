"""search_qa as the loop sees it: search a corpus, read documents, answer one question.

Nothing here has an effect outside its own state file, so a call that a restart broke off is simply
run again: it gives what it would have given.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from houston_daemon.environments.interruption import BrokenOff, unless_stopped
from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.observing import observed
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.questions.answering import SCORE, Answering, Compared, gone
from houston_daemon.environments.questions.state import State
from houston_daemon.environments.questions.text_scoring import exact_match, token_f1
from houston_daemon.environments.result import result_since
from houston_daemon.environments.retrieval.corpus import Corpus
from houston_daemon.environments.retrieval.protocol import SearchFailed
from houston_daemon.environments.retrieval.searcher import retrieval_root, task_corpus
from houston_daemon.environments.search_qa import actions
from houston_daemon.environments.search_qa.catalog import catalog
from houston_daemon.environments.search_qa.observations import Documents
from houston_daemon.environments.search_qa.reading import window
from houston_shared.errors import HoustonError
from houston_shared.records import Call, Intent, Result, RolloutSpec
from houston_shared.task import Task

log = logging.getLogger(__name__)
_HEAD = 300
"""Characters that the head of a document's window may take."""


class SearchQa:
    """One question for one rollout. See `protocol.Environment`."""

    def __init__(self, spec: RolloutSpec, task: Task, characters: int) -> None:
        self._spec = spec
        self._characters = characters
        self._catalog = catalog(task)
        self._corpus: Corpus = task_corpus(spec, task)
        self._answering = Answering(spec, task, _compared, "Search and read first.")
        self.tools: Sequence[ToolSpec] = self._catalog.tools
        self.brief = ""

    async def open(self, begun: bool = False) -> None:
        """Choose the question and index the corpus, or find both again.

        Raises HoustonError when the set or the corpus cannot be read, or when a rollout that has
        steps finds its question or its corpus gone.
        """
        state = await asyncio.to_thread(self._answering.find, begun)
        index = retrieval_root(self._spec) / "corpora" / state.index if state else None
        if index is None or not self._corpus.use(index):
            index = await self._indexed(state)
        if state is None:
            state = await asyncio.to_thread(self._answering.begin, index.name)
        self.brief = f"Question: {state.question.question}"

    def check(self, call: Call) -> Call:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        if call.name == SCORE and not call.arguments and not call.error:
            return call
        return self._catalog.check(call)

    def deadline(self, call: Call) -> float:
        """Nothing here sleeps."""
        return 0.0

    async def act(self, call: Call, standing: Standing, stop: Stop) -> Result:
        """Run one call; what goes wrong is an observation."""
        begun = time.monotonic()
        call = self.check(call)
        observation = await self._observe(call, standing, stop)
        return await result_since(begun, call, observation, self._characters)

    async def recover(self, intent: Intent, standing: Standing, stop: Stop) -> Result:
        """The same as `act`: an answer that was taken already is not taken twice."""
        return await self.act(intent.call, standing, stop)

    async def close_step(self, step: int) -> Closing:
        """Nothing changes but the state, which is on disk."""
        return Closing()

    async def close(self, ended: bool) -> None:
        """Nothing to let go of: indexes belong to all rollouts."""

    async def _observe(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        return await observed(call, lambda: self._do(call, standing, stop), _words, log)

    async def _do(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        if call.name == SCORE:
            return self._answering.unanswered(standing, "answer")
        arguments = self._catalog.arguments(call)
        if isinstance(arguments, actions.Search):
            return await unless_stopped(self._search(arguments), stop)
        if isinstance(arguments, actions.OpenDocument):
            return await unless_stopped(self._read(arguments), stop)
        text = call.arguments["text"]
        return await asyncio.to_thread(self._answering.answer, call.id, text, standing)

    async def _search(self, call: actions.Search) -> Observation:
        hits = await self._corpus.search(call.query, call.top_k)
        return Documents(
            query=call.query,
            requested_top_k=call.top_k,
            total_results=len(hits),
            documents=tuple(hits),
        )

    async def _read(self, call: actions.OpenDocument) -> Observation:
        document = await self._corpus.document(call.id)
        if document is None:
            return Failed(error=f"There is no document {call.id!r}; search gives their names.")
        return window(document, call.line_number, self._characters - _HEAD)

    async def _indexed(self, state: State | None) -> Path:
        try:
            index = await self._corpus.prepare()
        except SearchFailed as problem:
            raise HoustonError(str(problem), "The rollout cannot start.") from None
        if state is not None and index.name != state.index:
            raise gone("its corpus has changed since it began")
        return index


def _compared(answer: str, gold: Sequence[str]) -> Compared:
    return Compared(exact_match(answer, gold), token_f1(answer, gold))


def _words(problem: Exception) -> str:
    return str(problem) if isinstance(problem, SearchFailed | BrokenOff) else ""
