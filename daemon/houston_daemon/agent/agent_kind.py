"""What one kind of agent does differently in the common loop: which actions a step may take, what
follows its calls, and how a rollout ends without an answer.

`react` adds nothing here: its steps are thought, action and observation. `flow` is in `agent.flow`.
The loop, the journal, resume, guidance, forks and budgets are the same for every kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from houston_daemon.agent.purification import StepAttempt
from houston_daemon.environments.environment_protocol import Environment, ToolSpec
from houston_daemon.prompts.context_ledger import Context
from houston_daemon.prompts.dialect_protocol import AgentAction
from houston_shared.records import (
    DeliveredGuidance,
    ObservationBody,
    StepRecord,
    ToolCall,
    Verification,
)


@dataclass(frozen=True, slots=True)
class AfterCalls:
    """What an agent adds to the observation that closes a step."""

    notes: tuple[str, ...] = ()
    """Lines of its tail."""
    verification: Verification | None = None


class AgentKind(Protocol):
    """What one kind of agent does in a rollout."""

    max_attempts: int
    """Answers that are sampled for one step before one that is no action stands."""
    attempts_made: int
    """Of the open step, those that the journal has already (after a restart)."""
    tail_tokens: int
    """What its notes take of an observation, beside the loop's own."""
    replays: bool
    """Whether it is told of every step of before a restart."""

    def allowed_tools(self, step: int) -> Sequence[ToolSpec]:
        """The tools that `step` may call."""
        ...

    def check(self, decided: AgentAction, step: int) -> AgentAction:
        """What was decided, or why this agent cannot take it as a step."""
        ...

    def fallback_call(self, opened: StepAttempt) -> ToolCall | None:
        """The call that gives an answer when the budget ends without one; None if the agent has no
        such call or has made it already."""
        ...

    async def after_calls(
        self, opened: StepAttempt, context: Context, finished: bool
    ) -> AfterCalls:
        """What follows the calls of a step, before its observation. Raises WorkerExit.

        context: the step's context, without the step itself. finished: whether the rollout ends
        with it.
        """
        ...

    def note_closed(
        self,
        opened: StepAttempt | StepRecord,
        observation: ObservationBody,
        guidance: Sequence[DeliveredGuidance],
    ) -> None:
        """Take note of a closed step; after a restart, also of the earlier ones, in order."""
        ...

    async def end(self) -> None:
        """Called when the rollout is over, before it reports that; perhaps again after a kill."""
        ...


class ReactAgent:
    """Thought, action, observation (APOLLO, Algorithm 1, part A). See `AgentKind`."""

    max_attempts = 1
    attempts_made = 0
    tail_tokens = 0
    replays = False

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def allowed_tools(self, step: int) -> Sequence[ToolSpec]:
        """All tools."""
        return self._environment.tools

    def check(self, decided: AgentAction, step: int) -> AgentAction:
        """Accepts any readable answer."""
        return decided

    def fallback_call(self, opened: StepAttempt) -> ToolCall | None:
        """None: the work is scored as it is."""
        return None

    async def after_calls(
        self, opened: StepAttempt, context: Context, finished: bool
    ) -> AfterCalls:
        """Nothing follows."""
        return AfterCalls()

    def note_closed(
        self,
        opened: StepAttempt | StepRecord,
        observation: ObservationBody,
        guidance: Sequence[DeliveredGuidance],
    ) -> None:
        """Remembers nothing outside the context."""

    async def end(self) -> None:
        """It keeps nothing beyond the rollout."""
