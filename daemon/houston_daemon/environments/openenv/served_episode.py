"""One episode of a task for an agent outside Houston: a world without loop, recorder and daemon.

It does what the agent loop would do: it counts steps and time of the task's budget, and scores at
the end. Nothing is recorded and no guidance is heard; at the end everything is removed.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.environments.environment_protocol import (
    BudgetStatus,
    Environment,
    Stop,
    ToolSpec,
)
from houston_daemon.environments.environment_registry import kind, make_environment
from houston_daemon.hosts.rollout_cleanup import clean_rollout
from houston_shared.records import EVALUATION_CALL, RolloutSpec, ToolCall, ToolResult
from houston_shared.task import LoadedTask
from houston_shared.terminal_log_files import rollout_folder


@dataclass(frozen=True, slots=True)
class Episodes:
    """Where episodes come from."""

    task: Callable[[int], LoadedTask]
    """The task of a seed; always the same, or one of a suite's."""
    spec: Callable[[LoadedTask, str, int], RolloutSpec]
    """What a rollout of the task with this name and seed is made from."""


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """What an action led to."""

    text: str
    success: bool
    reward: float
    """By how much the score changed, in hundredths: rewards add up to the last score, 0 to 1."""
    done: bool


class ServedEpisode:
    """One episode at a time; a new one replaces the one before."""

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes
        self._environment: Environment | None = None
        self._spec: RolloutSpec | None = None
        self.step = 0
        """Actions so far."""
        self._over = False

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """What the agent may call."""
        return self._environment.tools if self._environment is not None else ()

    async def begin(self, seed: int | None) -> str:
        """Make the world; return the agent's instructions. seed: None for any.

        Raises HoustonError where the world cannot be made.
        """
        await self.end()
        seed = secrets.randbelow(2**31) if seed is None else seed
        task = self._episodes.task(seed)
        spec = self._episodes.spec(task, f"env-serve-{secrets.token_hex(6)}", seed)
        environment = make_environment(spec, task.task)
        self._spec, self._environment = spec, environment
        self._task, self._kind = task.task, kind(task.task.environment)
        self.step, self._evaluations, self._score, self._over = 0, 0, 0.0, False
        self._started_at = time.monotonic()
        try:
            await environment.open()
        except BaseException:
            await self.end()
            raise
        return "\n\n".join(part for part in (task.instructions.strip(), environment.brief) if part)

    async def act(self, name: str, arguments: dict[str, object]) -> EpisodeStep:
        """Run one call, a step of its own. Raises HoustonError where the world is lost."""
        environment = self._environment
        if environment is None or self._over:
            words = "The episode is over." if self._over else "There is no episode yet."
            return EpisodeStep(f"Error: {words} Reset.", False, 0.0, self._over)
        self.step += 1
        before = self._score
        result = await self._run(environment, ToolCall(f"{self.step}.0", name, arguments))
        self._over = self._budget_status().budget_spent or bool(result.fields.get("finished"))
        if self._over and self._is_scored and result.kind != EVALUATION_CALL:
            await self._run(environment, ToolCall(f"{self.step}.1", EVALUATION_CALL, {}))
        closing = await environment.close_step(self.step)
        text = "\n".join((result.text, *closing.notes))
        reward = round((self._score - before) / 100.0, 6)
        return EpisodeStep(text, result.success, reward, self._over)

    async def end(self) -> None:
        """End the world and remove what it left on this machine."""
        environment, self._environment = self._environment, None
        spec, self._spec = self._spec, None
        if environment is not None and spec is not None:
            await environment.close(ended=True)
            root = Path(spec.host_root)
            await clean_rollout(root, spec.rollout, "", "snapshots")
            with contextlib.suppress(FileNotFoundError):  # no home is noted in it
                rollout_folder(root, spec.rollout).rmdir()

    @property
    def _is_scored(self) -> bool:
        return bool(self._task.evaluate.command) or self._kind.scores(self._task)

    async def _run(self, environment: Environment, call: ToolCall) -> ToolResult:
        result = await environment.act(environment.check(call), self._budget_status(), Stop())
        score = result.fields.get("overall_score")
        if result.kind == EVALUATION_CALL and isinstance(score, int | float):
            self._score = float(score)
            self._evaluations += bool(result.fields.get("counted", True))
        return result

    def _budget_status(self) -> BudgetStatus:
        budget, used = self._task.budget, time.monotonic() - self._started_at
        return BudgetStatus(
            step=self.step,
            steps_left=max(0, budget.steps - self.step),
            seconds_left=max(0.0, budget.active_seconds - used),
            evaluations=self._evaluations,
        )
