"""The question of one rollout: chosen or found again, answered once, scored.

An answer ends the rollout and is its evaluation; whoever gives none scores 0. How an answer is
compared is the environment's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Standing
from houston_daemon.environments.questions.observations import Answered, TooLate
from houston_daemon.environments.questions.question_set import chosen, read_questions
from houston_daemon.environments.questions.state import State, load, save, state_file
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.task import LoadedTask, Task

SCORE = "eval"
"""What the loop calls at the end of a rollout that has no score; no tool of the agent."""


@dataclass(frozen=True, slots=True)
class Compared:
    """How well an answer fits, 0 to 1."""

    exact: float
    f1: float = 0.0


Compare = Callable[[str, Sequence[str]], Compared]
"""An answer and the gold answers."""


class Answering:
    """Answers of one rollout."""

    def __init__(self, spec: RolloutSpec, task: Task, compare: Compare, hint: str = "") -> None:
        """hint: what to do first, for who answers before the task's least step."""
        self._spec = spec
        self._task = task
        self._compare = compare
        self._hint = hint
        self._file = state_file(spec, spec.rollout, task.environment)
        self._state: State | None = None

    @property
    def now(self) -> State:
        """What is known of the rollout; it was found or begun before."""
        assert self._state is not None, "the question comes first"
        return self._state

    def find(self, begun: bool) -> State | None:
        """What an earlier worker left, or for a branch that begins: its parent's, unanswered.

        None for a rollout that begins. Raises HoustonError when one that has steps lost it.
        """
        try:
            found = load(self._file)
            if found is None and self._spec.parent:
                parent = load(state_file(self._spec, self._spec.parent, self._task.environment))
                if parent is None:
                    raise gone(f"what {self._spec.parent} was asked is no longer on the host")
                found = self._keep(State(parent.question, parent.index))
        except (OSError, ValueError) as problem:
            raise gone(f"its state cannot be read ({type(problem).__name__})") from None
        if found is None and begun:
            raise gone("its question is no longer on the host")
        self._state = found
        return found

    def begin(self, index: str = "") -> State:
        """Choose the question by the rollout's seed. Raises HoustonError."""
        settings = self._task.questions
        file = Path(self._spec.task.folder) / settings.file
        question = chosen(read_questions(file), settings, self._spec.seed, str(file))
        self._state = self._keep(State(question, index))
        return self._state

    def answer(self, call: str, text: str, standing: Standing) -> Observation:
        """Take and score an answer; the same call gives what it gave before."""
        budget, state = self._task.budget, self.now
        if call in state.answers:
            return state.answers[call]
        if standing.step < budget.minimum_steps:
            return Failed(
                error=f"An answer is refused before step {budget.minimum_steps}; this is step "
                f"{standing.step}. {self._hint}".rstrip()
            )
        if standing.evaluations >= budget.evaluations or state.answered_at == standing.step:
            return TooLate()
        found = self._compare(text, state.question.answers)
        state.answers[call] = Answered(
            overall_score=100.0 * found.exact,
            exact_match=found.exact,
            f1=round(found.f1, 6),
            question_id=state.question.id,
            finished=True,
        )
        state.answered_at = standing.step
        save(self._file, state)
        return state.answers[call]

    def unanswered(self, standing: Standing, tool: str) -> Observation:
        """The score of a rollout whose budget is spent without an answer, which the loop asks.

        tool: what an agent answers with that calls this itself.
        """
        if standing.steps_left and standing.seconds_left > 0:
            return Failed(error=f"There is no tool {SCORE!r}; {tool} gives the answer.")
        return Answered(overall_score=0.0, question_id=self.now.question.id, finished=False)

    def _keep(self, state: State) -> State:
        try:
            save(self._file, state)
        except OSError as problem:
            raise HoustonError(
                f"The state of the rollout cannot be written: {problem.strerror}.",
                "The rollout cannot start.",
            ) from None
        return state


def check_questions(task: LoadedTask) -> None:
    """Raise ConfigurationError for a set that no rollout could be asked from."""
    settings = task.task.questions
    if Path(settings.file).is_absolute() or ".." in Path(settings.file).parts:
        raise ConfigurationError(f"{task.file}: `questions.file` is not beside the task file.")
    file = task.folder / settings.file
    chosen(read_questions(file), settings, 0, str(file))


def gone(why: str) -> HoustonError:
    """A rollout that cannot go on as it began."""
    return HoustonError(
        f"The rollout cannot go on: {why}.", "Nothing was changed.", "Start a new one."
    )
