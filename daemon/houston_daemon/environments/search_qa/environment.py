"""search_qa as the loop sees it: search a corpus, read documents, answer one question.

Nothing here has an effect outside its own state file, so a call that a restart broke off is simply
run again: it gives what it would have given.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_daemon.environments.interruption import BrokenOff, unless_stopped
from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Closing, Standing, Stop, ToolSpec
from houston_daemon.environments.retrieval.corpus import Corpus
from houston_daemon.environments.retrieval.protocol import SearchFailed
from houston_daemon.environments.retrieval.searcher import retrieval_root, task_corpus
from houston_daemon.environments.search_qa import actions
from houston_daemon.environments.search_qa.catalog import SCORE, catalog
from houston_daemon.environments.search_qa.observations import Answered, Documents, TooLate
from houston_daemon.environments.search_qa.questions import chosen, read_questions
from houston_daemon.environments.search_qa.reading import window
from houston_daemon.environments.search_qa.scoring import exact_match, token_f1
from houston_daemon.environments.search_qa.state import State, load, save, state_file
from houston_daemon.environments.workstation.result import result
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
        self._task = task
        self._characters = characters
        self._catalog = catalog(task)
        self._corpus: Corpus = task_corpus(spec, task)
        self._file = state_file(spec, spec.rollout)
        self._state: State | None = None
        self.tools: Sequence[ToolSpec] = self._catalog.tools
        self.brief = ""

    async def open(self, begun: bool = False) -> None:
        """Choose the question and index the corpus, or find both again.

        Raises HoustonError when the set or the corpus cannot be read, or when a rollout that has
        steps finds its question or its corpus gone.
        """
        state = await asyncio.to_thread(self._loaded)
        if state is None and begun:
            raise _gone("its question is no longer on the host")
        index = retrieval_root(self._spec) / "corpora" / state.index if state else None
        if index is None or not self._corpus.use(index):
            index = await self._indexed(state)
        if state is None:
            state = await asyncio.to_thread(self._begun, index.name)
        self._state = state
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
        seconds = round(time.monotonic() - begun, 6)
        return await asyncio.to_thread(result, call, observation, self._characters, seconds)

    async def recover(self, intent: Intent, standing: Standing, stop: Stop) -> Result:
        """The same as `act`: an answer that was taken already is not taken twice."""
        return await self.act(intent.call, standing, stop)

    async def close_step(self, step: int) -> Closing:
        """Nothing changes but the state, which is on disk."""
        return Closing()

    async def close(self, ended: bool) -> None:
        """Nothing to let go of: indexes belong to all rollouts."""

    async def _observe(self, call: Call, standing: Standing, stop: Stop) -> Observation:
        if call.error:
            return Failed(error=call.error)
        try:
            if call.name == SCORE:
                return self._unanswered(call, standing)
            arguments = self._catalog.arguments(call)
            if isinstance(arguments, actions.Search):
                return await unless_stopped(self._search(arguments), stop)
            if isinstance(arguments, actions.OpenDocument):
                return await unless_stopped(self._read(arguments), stop)
            return await asyncio.to_thread(self._answer, call, standing)
        except (SearchFailed, BrokenOff) as problem:
            return Failed(error=str(problem))
        except Exception:  # an exception in a tool is an observation
            log.exception("%s", call.name)
            return Failed(
                error=f"{call.name} failed inside Houston; the log of the rollout says why."
            )

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

    def _answer(self, call: Call, standing: Standing) -> Observation:
        budget, state, text = self._task.budget, self._now, call.arguments["text"]
        if call.id in state.answers:
            return state.answers[call.id]
        if standing.step < budget.minimum_steps:
            return Failed(
                error=f"An answer is refused before step {budget.minimum_steps}; this is step "
                f"{standing.step}. Search and read first."
            )
        if standing.evaluations >= budget.evaluations or state.answered_at == standing.step:
            return TooLate()
        gold = state.question.answers
        exact = exact_match(text, gold)
        state.answers[call.id] = Answered(
            overall_score=100.0 * exact,
            exact_match=exact,
            f1=round(token_f1(text, gold), 6),
            question_id=state.question.id,
            finished=True,
        )
        state.answered_at = standing.step
        save(self._file, state)
        return state.answers[call.id]

    def _unanswered(self, call: Call, standing: Standing) -> Observation:
        """The score of a rollout whose budget is spent without an answer, which the loop asks."""
        if standing.steps_left and standing.seconds_left > 0:
            return Failed(error="There is no tool 'eval'; answer gives the answer.")
        return Answered(overall_score=0.0, question_id=self._now.question.id, finished=False)

    @property
    def _now(self) -> State:
        assert self._state is not None, "open() comes first"
        return self._state

    def _loaded(self) -> State | None:
        """The rollout's own state, or for a branch that begins: its parent's, without answers."""
        try:
            own = load(self._file)
            if own is not None or not self._spec.parent:
                return own
            parent = load(state_file(self._spec, self._spec.parent))
        except (OSError, msgspec.MsgspecError) as problem:
            raise _gone(f"its state cannot be read ({type(problem).__name__})") from None
        return self._kept(State(parent.question, parent.index)) if parent else None

    async def _indexed(self, state: State | None) -> Path:
        try:
            index = await self._corpus.prepare()
        except SearchFailed as problem:
            raise HoustonError(str(problem), "The rollout cannot start.") from None
        if state is not None and index.name != state.index:
            raise _gone("its corpus has changed since it began")
        return index

    def _begun(self, index: str) -> State:
        settings = self._task.questions
        file = Path(self._spec.task.folder) / settings.file
        question = chosen(read_questions(file), settings, self._spec.seed, str(file))
        return self._kept(State(question, index))

    def _kept(self, state: State) -> State:
        try:
            save(self._file, state)
        except OSError as problem:
            raise HoustonError(
                f"The state of the rollout cannot be written: {problem.strerror}.",
                "The rollout cannot start.",
            ) from None
        return state


def _gone(why: str) -> HoustonError:
    return HoustonError(
        f"The rollout cannot go on: {why}.", "Nothing was changed.", "Start a new one."
    )
