"""The reasoning_gym environment: one question of that package, answered once.

The question stands in the task, as a suite wrote it. The answer is scored by the dataset's own
`score_answer`, in the sandbox (`reasoning_gym_child`); the agent is not told how. Nothing is kept
but that: the same answer to the same question scores the same.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from houston_daemon.environments import local_host_setup
from houston_daemon.environments.call_handling import (
    CallInterrupted,
    ToolEnvironment,
    cancel_on_stop,
    early_finish_refusal,
    named_failure,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop, Undo
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.python.code_environment import sandbox_of_setup
from houston_daemon.environments.questions.question_answering import Answered
from houston_daemon.environments.tool_arguments import Arguments, Catalog, chosen_actions
from houston_daemon.environments.typed_observation import Failed, Observation
from houston_daemon.hosts.local_host import LocalHost
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import EVALUATION_CALL, ToolCall
from houston_shared.task import LoadedTask, Task

PACKAGE = "reasoning_gym"
INSTALL = "pip install 'houston-agents[reasoning-gym]'"
SCORE_SECONDS = 120.0
"""How long scoring may take, most of which is the package's import; then the answer scores 0."""
MAX_ANSWER_CHARACTERS = 20_000
_CHILD = Path(__file__).with_name("reasoning_gym_child.py")
_OUTPUT = 1_000_000


class Finish(Arguments, frozen=True, kw_only=True):
    """End the task with the answer."""

    name: ClassVar[str] = "finish"
    family: ClassVar[str] = "reasoning_gym"
    answer: Annotated[
        str, Meta(max_length=MAX_ANSWER_CHARACTERS, description="The answer and nothing else.")
    ]


def catalog(task: Task) -> Catalog:
    """The task's one tool. Raises ConfigurationError for another."""
    return Catalog(chosen_actions(task, (Finish,), "reasoning_gym", (Finish.name,)))


def check_task(task: LoadedTask) -> None:
    """Raise ConfigurationError for a task that could not run, and where the package is missing."""
    catalog(task.task)
    if not task.task.reasoning_gym.dataset:
        raise ConfigurationError(
            f"{task.file}: reasoning_gym needs `reasoning_gym.dataset`, as a suite writes it.",
            next="houston suite run reasoning-gym:chain_sum",
        )
    if task.task.evaluate.command:
        raise ConfigurationError(f"{task.file}: reasoning_gym runs no evaluator; it scores itself.")
    check_package(str(task.file))


def check_package(where: str) -> None:
    """Raise ConfigurationError where reasoning-gym is not installed. where: who needs it."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise ConfigurationError(
            f"{where} needs the Python package reasoning-gym, which is not installed.",
            "Nothing was run.",
            INSTALL,
        )


class _Reply(msgspec.Struct, frozen=True):
    score: float = 0.0
    error: str = ""
    problem: str = ""


class ReasoningGymEnvironment(ToolEnvironment):
    """A question for one rollout. See `environment_protocol.Environment`."""

    undo: Undo = "stateless"

    def __init__(self, setup: EnvironmentSetup, host: LocalHost) -> None:
        super().__init__(setup.characters, scores=True, host=host)
        self._task = setup.task
        self._question = setup.spec.task.instructions
        self._host: LocalHost = host
        self._catalog = catalog(setup.task)
        self.tools = self._catalog.tools

    async def open(self, begun: bool = False) -> None:
        """Make the place where answers are scored. Raises HoustonError."""
        await self._host.prepare(None, begun)

    def _check(self, call: ToolCall) -> ToolCall:
        return self._catalog.check(call)

    def _error_text(self, call: ToolCall, problem: Exception) -> str:
        if isinstance(problem, CallInterrupted):
            return str(problem)
        return named_failure(call, problem) if isinstance(problem, HoustonError) else ""

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        if call.name == EVALUATION_CALL:
            if not budget_status.budget_spent:
                return Failed(error="There is no tool 'eval'; finish gives the answer.")
            return self._answered_result(0.0, finished=False)
        if error := early_finish_refusal(budget_status, self._task.budget.minimum_steps):
            return Failed(error=error)
        worth = await cancel_on_stop(self._score(call.arguments["answer"]), stop)
        return self._answered_result(worth, finished=True)

    def _answered_result(self, worth: float, *, finished: bool) -> Answered:
        gym_settings = self._task.reasoning_gym
        return Answered(
            overall_score=round(100.0 * worth, 6),
            exact_match=float(worth >= 1.0),
            question_id=f"{gym_settings.dataset}-{gym_settings.seed}",
            finished=finished,
        )

    async def _score(self, answer: str) -> float:
        """What the answer is worth, 0 to 1. Raises HoustonError where nobody can say."""
        gym_settings = self._task.reasoning_gym
        question = {
            "dataset": gym_settings.dataset,
            "settings": self._task.settings,
            "seed": gym_settings.seed,
            "question": self._question,
            "answer": answer.replace("\0", ""),
        }
        folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        ended = await self._host.spawn(
            [local_host_setup.PYTHON, "-P", "-S", str(_CHILD), *folders],
            seconds=SCORE_SECONDS,
            writable=False,
            extra_read=local_host_setup.interpreter_paths(_CHILD, *folders),
            environment={
                "HOUSTON_ANSWER": json.dumps(question),
                "PYTHONHASHSEED": "0",
                "OPENBLAS_NUM_THREADS": "1",
            },
            output_limit=_OUTPUT,
            network=False,
        )
        lines = ended.stdout.decode("utf-8", "replace").rstrip().rpartition("\n")
        try:
            verdict = msgspec.json.decode(lines[2], type=_Reply)
        except msgspec.MsgspecError:
            if ended.exit_code is None:
                return 0.0
            words = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
            raise HoustonError(f"The answer could not be scored: {words or 'no word'}.") from None
        if verdict.error:
            raise HoustonError(f"The answer could not be scored: {verdict.error}.")
        return verdict.score


def build_environment(setup: EnvironmentSetup) -> ReasoningGymEnvironment:
    """The environment; nothing is touched before `open`."""
    return ReasoningGymEnvironment(setup, sandbox_of_setup(setup))
