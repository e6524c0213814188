"""The question of one rollout: chosen or found again, answered once, scored.

One file on the host keeps what a restarted worker needs. The agent never sees the score.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from houston_daemon.environments.environment_protocol import BudgetStatus
from houston_daemon.environments.questions.answer_scorers import (
    CHOICE_LETTERS,
    AnswerScore,
    check_scorer,
)
from houston_daemon.environments.questions.question_set import (
    Question,
    choose_question,
    read_questions,
)
from houston_daemon.environments.rollout_state import load_state, save_state, state_file
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_shared.errors import ConfigurationError, HoustonError, unwritable_as_error
from houston_shared.records import EVALUATION_CALL, RolloutSpec
from houston_shared.task import LoadedTask, Task
from houston_shared.task_tables import QuestionScorer


class Answered(Observation, frozen=True, kw_only=True):
    """An answer with its score, or the score of none; the fields of an evaluation."""

    kind: ClassVar[str] = "eval"
    overall_score: float
    """0 to 100."""
    state: str = "scored"
    counted: bool = True
    seconds: float = 0.0
    exact_match: float = 0.0
    f1: float = 0.0
    """0 to 1."""
    question_id: str
    finished: bool
    """Whether it ends the rollout."""


class TooLate(Observation, frozen=True, kw_only=True):
    """An answer beyond those that the task allows: the one before stands."""

    kind: ClassVar[str] = "answer"
    finished: bool = True


@render.register
def _(result: Answered) -> Text:
    return Text("The answer is taken." if result.finished else "No answer was given.")


@render.register
def _(result: TooLate) -> Text:
    return Text("The answer that was given before stands; this one does not count.")


class QuestionState(msgspec.Struct):
    """Everything in the file."""

    question: Question
    index: str = ""
    """File name of the corpus's index, where there is a corpus."""
    answers: dict[str, Answered] = {}
    """Call → what was said to it."""
    answered_at: int = 0
    """Step of the last answer; a step cannot give a second one."""


Compare = Callable[[str, Sequence[str]], AnswerScore]
"""An answer and the gold answers."""


class QuestionAnswering:
    """Answers of one rollout."""

    def __init__(self, spec: RolloutSpec, task: Task, compare: Compare, hint: str = "") -> None:
        """hint: what to do first, for who answers before the task's least step."""
        self._spec = spec
        self._task = task
        self._compare = compare
        self._hint = hint
        self._file = state_file(spec, f"{task.environment}.json")
        self._state: QuestionState | None = None

    @property
    def now(self) -> QuestionState:
        """What is known of the rollout; it was found or begun before."""
        assert self._state is not None, "the question comes first"
        return self._state

    def find(self, begun: bool) -> QuestionState | None:
        """What an earlier worker stored; for a branch that starts, its parent's question,
        unanswered.

        None for a rollout that starts. Raises HoustonError when one that has steps lost it.
        """
        state = load_state(self._file, QuestionState)
        if state is None and (parent_id := self._spec.parent):
            parent = load_state(state_file(self._spec, self._file.name, parent_id), QuestionState)
            if parent is None:
                raise resume_error(f"what {parent_id} was asked is no longer on the host")
            state = self._save_state(QuestionState(parent.question, parent.index))
        if state is None and begun:
            raise resume_error("its question is no longer on the host")
        self._state = state
        return state

    def begin(self, index: str = "") -> QuestionState:
        """Choose the question by the rollout's seed. Raises HoustonError."""
        settings = self._task.questions
        file = Path(self._spec.task.folder) / settings.file
        question = choose_question(read_questions(file), settings, self._spec.seed, str(file))
        self._state = self._save_state(QuestionState(question, index))
        return self._state

    def answer(
        self, call: str, text: str, budget_status: BudgetStatus, known: AnswerScore | None = None
    ) -> Observation:
        """Accept and score an answer; the same call returns the same again. known: its score, if
        that took more than a comparison."""
        budget, state = self._task.budget, self.now
        if call in state.answers:
            return state.answers[call]
        if budget_status.step < budget.minimum_steps:
            return Failed(
                error=f"An answer is refused before step {budget.minimum_steps}; this is step "
                f"{budget_status.step}. {self._hint}".rstrip()
            )
        if (
            budget_status.evaluations >= budget.evaluations
            or state.answered_at == budget_status.step
        ):
            return TooLate()
        score = known or self._compare(text, state.question.answers)
        state.answers[call] = Answered(
            overall_score=100.0 * score.exact,
            exact_match=score.exact,
            f1=round(score.f1, 6),
            question_id=state.question.id,
            finished=True,
        )
        state.answered_at = budget_status.step
        save_state(self._file, state)
        return state.answers[call]

    def unanswered(self, budget_status: BudgetStatus, tool: str) -> Observation:
        """The score that the loop requests when the budget is spent without an answer.

        tool: the tool for answers, named to an agent that calls this itself.
        """
        if not budget_status.budget_spent:
            return Failed(error=f"There is no tool {EVALUATION_CALL!r}; {tool} gives the answer.")
        return Answered(overall_score=0.0, question_id=self.now.question.id, finished=False)

    def _save_state(self, state: QuestionState) -> QuestionState:
        with unwritable_as_error("The state of the rollout", "The rollout cannot start."):
            save_state(self._file, state)
        return state


def check_questions(task: LoadedTask, runs_tests: bool = False) -> None:
    """Raise ConfigurationError for a set that no rollout could be asked from, or one with a
    question that its scorer cannot score. runs_tests: whether the environment runs hidden tests.
    """
    settings = task.task.questions
    if Path(settings.file).is_absolute() or ".." in Path(settings.file).parts:
        raise ConfigurationError(f"{task.file}: `questions.file` is not next to the task file.")
    file = task.folder / settings.file
    check_scorer(settings.scorer, str(task.file))
    if settings.scorer == "tests":
        _check_tests_are_hidden(task, runs_tests)
    questions = read_questions(file)
    choose_question(questions, settings, 0, str(file))
    for question in questions:
        if trouble := _scoring_trouble(question, settings.scorer):
            raise ConfigurationError(f"{file}: the question {question.id!r} {trouble}.")


def _check_tests_are_hidden(task: LoadedTask, runs_tests: bool) -> None:
    if not runs_tests:
        raise ConfigurationError(
            f"{task.file}: `questions.scorer` is `tests`, which {task.task.environment} cannot"
            " run.",
            next='environment = "research"',
        )
    if task.task.mapped.kind == "none":
        raise ConfigurationError(
            f"{task.file}: without a sandbox the agent's code could read the hidden tests."
        )


def _scoring_trouble(question: Question, scorer: QuestionScorer) -> str:
    """Why the scorer cannot score the question; empty where it can."""
    if scorer == "tests":
        return "" if question.tests.cases else "has no `tests`"
    if not question.answers:
        return "has no `answers`"
    if scorer == "choice" and question.answers[0] not in tuple(CHOICE_LETTERS):
        first, last = CHOICE_LETTERS[0], CHOICE_LETTERS[-1]
        return f"needs as its first answer a letter from {first} to {last}"
    return ""


def resume_error(reason: str) -> HoustonError:
    """A rollout that cannot go on as it began."""
    return HoustonError(
        f"The rollout cannot go on: {reason}.", "Nothing was changed.", "Start a new one."
    )
