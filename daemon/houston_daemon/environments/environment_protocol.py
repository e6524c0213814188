"""What the rollout loop requires of an environment: tools in, typed observations out.

An environment turns an action into an observation. It knows nothing of prompts, tokens or guidance.
It never raises for a mistake of the agent: that becomes an observation.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from houston_shared.records import (
    CallIntent,
    FileChange,
    JobReport,
    TerminalSpan,
    ToolCall,
    ToolResult,
)

Undo = Literal["none", "stateless", "restore"]
"""Whether calls can be taken back, so that a failed one may be corrected ahead: not at all; they
leave nothing behind; or the world is brought back from a saved state."""
StopReason = Literal["", "wake", "interrupt", "budget"]
"""`wake` ends sleeps and waits; `interrupt` and `budget` (active time is spent) end any waiting."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as a model sees it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments object; strings and integers carry bounds."""
    family: str = ""

    def openai(self) -> dict[str, Any]:
        """The tool in OpenAI's form."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


@dataclass(slots=True)
class Stop:
    """Tells a running call that a person's message has come and that it should stop waiting.

    The call is not undone: it returns the present state. Draining and cancelling do not use this;
    the loop cancels the task, and `recover` gives an honest result after a restart.
    """

    event: asyncio.Event = field(default_factory=asyncio.Event)
    reason: StopReason = ""


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """Where the rollout stands when a call runs."""

    step: int
    steps_left: int
    seconds_left: float
    """Of active time."""
    evaluations: int
    """Submissions used."""
    evaluation_seconds: float = 0.0
    """Time that evaluations took so far, those without a score too."""
    cost_spent: bool = False
    """Whether samples have cost what they may."""

    @property
    def budget_spent(self) -> bool:
        """Whether a budget ends the rollout with this step; then the loop requests its score."""
        return not self.steps_left or self.seconds_left <= 0 or self.cost_spent


@dataclass(frozen=True, slots=True)
class Closing:
    """What a step did to the world."""

    snapshot: str = ""
    files: tuple[FileChange, ...] = ()
    more_files: int = 0
    spans: tuple[TerminalSpan, ...] = ()
    notes: tuple[str, ...] = ()
    """What the agent should know besides, a line each; Houston's own words."""
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """Snapshots of the hosts beyond the first, by name; their files are named `host:path`."""


class Environment(Protocol):
    """One rollout's world."""

    tools: Sequence[ToolSpec]
    brief: str
    """What this rollout of the task is about (its question, its variation), known once it is open;
    it follows the task's instructions. Empty where these say everything."""
    undo: Undo
    """Whether its calls can be taken back."""

    async def open(self, begun: bool = False) -> None:
        """Make the world, or find it again after a restart.

        begun: the rollout has steps in this world already. Raises HoustonError when the world
        cannot be made; `host_protocol.NeedsPerson` when it is gone, or another home drives it, and
        `host_protocol.HostAway` while a machine that it needs cannot be reached.
        """
        ...

    def check(self, call: ToolCall) -> ToolCall:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        ...

    def deadline(self, call: ToolCall) -> float:
        """Unix time at which a sleep would end if it began now; 0 for calls that are no sleep."""
        ...

    async def act(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> ToolResult:
        """Run one call. Text in the result is cut to the limit and disarmed of guidance tags.

        A call with `error` set yields an error observation. Cancellation leaves commands running.
        """
        ...

    async def recover(
        self, intent: CallIntent, budget_status: BudgetStatus, stop: Stop
    ) -> ToolResult:
        """The result of a call that was about to run when the worker ended.

        A sleep goes on until its deadline. Everything else is not run again: the result says that
        the outcome is unknown and what the terminal shows now.
        """
        ...

    async def save_state(self, name: str) -> None:
        """Keep the present world under `name`, even through a kill; replaces an earlier one of that
        name. Called only where `undo` is `restore`."""
        ...

    async def restore_state(self, name: str) -> None:
        """Bring the world back to what `name` kept. Raises HoustonError when it cannot."""
        ...

    async def close_step(self, step: int) -> Closing:
        """Take the step's snapshot and the terminals' spans.

        Raises `host_protocol.NeedsPerson`: the step is closed again when a person has helped.
        """
        ...

    async def close(self, ended: bool) -> None:
        """Let go; with `ended`, also end the rollout's terminals."""
        ...


@runtime_checkable
class ReplayedEnvironment(Protocol):
    """An environment whose state follows from its calls alone, so that it keeps no file.

    After a restart, and in a branch, the loop gives it the results of the journal. Given fewer
    results than it returned, it takes the state before the others: this is how a step is undone.
    """

    def replay(self, results: Sequence[ToolResult]) -> None:
        """Take the state to which the calls of these results lead from the beginning, in order.
        Failed calls, and those not run because a person spoke, are among them and change
        nothing."""
        ...


Gpus = Mapping[str, tuple[int, ...]]
"""Host → numbers of the GPUs there that the rollout has leased."""
ReportJob = Callable[[JobReport, str], Awaitable[None]]
"""Told how a job stands, and what the agent has asked for since it began."""


async def report_to_nobody(job: JobReport, requests: str) -> None:
    """Ignores reports, for environments without a listener."""


WaitingForSlot = Callable[[bool], None]
"""Told True when a call begins to wait for an evaluation slot and False when that ends; the time
between is not active time."""
