"""What attention signals and rules see of a step: calls, outcomes, file changes, remaining
budgets.

Steps of the journal become small typed views: of an observation only a hash and a short excerpt
are kept. An `AttentionWindow` holds the last steps, the newest at the end. It holds no signal;
those are in `attention_signals`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from houston_shared.records import ObservationBody, SampleBody, StepRecord, ToolCall, ToolResult
from houston_shared.task import AttentionSettings

EXCERPT_CHARACTERS = 100
"""Characters of a call or an error that a reason quotes."""
THINKING_ACTIONS = frozenset({"think"})
WAITING_ACTIONS = frozenset({"sleep"})
EVALUATION = "eval"


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """One call and what came of it."""

    name: str
    arguments: Mapping[str, Any]
    kind: str
    """Type of the observation."""
    success: bool
    fields: Mapping[str, Any]
    """The typed fields of the observation."""
    output_hash: bytes
    """Hash of what it showed; of a command without its first line, which names times."""
    summary: str
    """The call with its first argument on one line, cut."""
    error: str
    """What went wrong, in one line, cut; empty for a success."""
    forged_tags: int = 0

    @property
    def key(self) -> tuple[str, bytes]:
        """Equal for calls that ask the same."""
        return self.name, msgspec.json.encode(self.arguments, order="deterministic")


class RepeatCount(NamedTuple):
    """How many acting steps in a row, up to one step, did the same again."""

    repeats: int = 0
    """Steps that did what a certain number of acting steps before them did."""
    same_outcome: int = 0
    """Of those that did just this action: how many showed the same, too."""


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """One closed step."""

    step: int
    calls: tuple[ObservedCall, ...]
    changed: bool | None
    """Whether it changed files; None where there is no snapshot that could tell."""
    malformed: str = ""
    """Why no action could be read from what was sampled."""
    interrupted: bool = False
    """Whether a person stopped its sample."""
    added: int = 0
    """Calls at its end that the loop made, not the agent: the last evaluation of a rollout."""
    runs: tuple[RepeatCount, RepeatCount] = (RepeatCount(), RepeatCount())
    """The same as the acting step before, and as the second before, counted from before the window,
    too (`with_repeat_counts`)."""
    failing: int = 0
    """Steps in a row up to this one in which something went wrong (`with_failing_count`)."""
    failed_jobs: tuple[str, ...] = ()
    """Background jobs that it showed to have ended with an error, in words; found by
    `BackgroundJobs`, from before the window, too."""
    ignored_guidance: str = ""
    """Which guidance of the steps before it was not followed, in words; found by
    `GuidanceFollowing`."""

    @property
    def acts(self) -> bool:
        """Whether it did something else than sleep."""
        return bool(self.calls) and not self.sleeps

    @property
    def outcome(self) -> tuple[bytes, ...]:
        """Equal for steps that showed the same."""
        return tuple(call.output_hash for call in self.calls)

    @property
    def action(self) -> tuple[tuple[str, bytes], ...]:
        """Equal for steps that do the same."""
        return tuple(call.key for call in self.calls)

    @property
    def sleeps(self) -> bool:
        """Whether it did nothing but sleep."""
        return bool(self.calls) and all(call.name in WAITING_ACTIONS for call in self.calls)

    @property
    def own_calls(self) -> tuple[ObservedCall, ...]:
        """The agent's calls, without those that the loop made."""
        return self.calls[: len(self.calls) - self.added]

    @property
    def argument_text(self) -> str:
        """What its calls were given, a value a line, without the contents of files."""
        arguments = (item for call in self.calls for item in call.arguments.items())
        return "\n".join(str(value) for name, value in arguments if name != "content")


@dataclass(frozen=True, slots=True)
class RemainingBudgets:
    """The budgets behind the newest step."""

    steps: int = 1
    """The budget."""
    steps_left: int = 1
    seconds: float = 1.0
    """The budget of active time."""
    seconds_left: float = 1.0
    cost: float = 0.0
    """The budget of what samples may cost; 0 is none."""
    cost_left: float = 0.0
    evaluations: int = 0
    """The budget; 0 without an evaluator."""
    evaluations_left: int = 0
    best: float | None = None
    """Best score, the newest step's included."""
    since_gain: int = 0
    """Submissions that gave a score since the best one."""
    seconds_since_gain: float = 0.0
    """Active time since the best score; since the beginning without one."""
    finished: bool = False
    """Whether the newest step ends the rollout."""


@dataclass(frozen=True, slots=True)
class AttentionWindow:
    """The last steps, the newest at the end."""

    steps: Sequence[ObservedStep]
    budgets: RemainingBudgets = field(default_factory=RemainingBudgets)

    @property
    def now(self) -> ObservedStep:
        """The step that is looked at."""
        return self.steps[-1]


def window_length(limits: AttentionSettings) -> int:
    """Steps that a window holds: as many as the longest signal asks for."""
    return max(
        20,
        limits.error_streak,
        4 * limits.repeated_actions,
        2 * limits.blind_edit_steps + 1,
        limits.unchanged_steps,
    )


def observe_step(
    step: int, sample: SampleBody, results: Sequence[ToolResult], closed: ObservationBody
) -> ObservedStep:
    """A step as signals see it."""
    changed = bool(closed.files or closed.more_files)
    return ObservedStep(
        step=step,
        calls=tuple(map(observe_call, results)),
        changed=changed if closed.snapshot else None,
        malformed=sample.malformed,
        interrupted=sample.finish_reason == "interrupted",
        added=max(0, len(results) - len(sample.calls)),
    )


def command_of(call: ObservedCall | ToolCall) -> str:
    """The command line that a call gives; empty for one without."""
    return str(call.arguments.get("command", ""))


def host_of_call(call: ObservedCall, first: str = "") -> str:
    """The host that a call names; empty for the first, whose name is `first`."""
    name = str(call.arguments.get("host", ""))
    return "" if name == first else name


def observe_record(record: StepRecord) -> ObservedStep | None:
    """A step read back from the journal; None while it is open."""
    if record.observation is None:
        return None
    return observe_step(record.step, record.sample, record.results, record.observation)


def observe_call(result: ToolResult) -> ObservedCall:
    """A result as signals see it."""
    call, text = result.call, result.text
    output = text.partition("\n")[2] if result.kind == "command" else text
    words = " ".join([call.name, *map(str, list(call.arguments.values())[:1])])
    return ObservedCall(
        name=call.name,
        arguments=call.arguments,
        kind=result.kind,
        success=result.success,
        fields=result.fields,
        output_hash=hashlib.sha256(output.encode(errors="replace")).digest(),
        summary=excerpt(words),
        error="" if result.success else excerpt(_error_excerpt(result)),
        forged_tags=result.forged_tags,
    )


def _error_excerpt(result: ToolResult) -> str:
    """What says the most: a traceback's last line, else the first, with what a colon announces."""
    if kind := result.fields.get("error_type"):
        return f"{kind}: {result.fields.get('error', '')}"
    lines = [line for line in result.text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback (most recent call last)"):
        return lines[-1]
    return " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])


def excerpt(text: str) -> str:
    """The first line with anything on it, cut at `EXCERPT_CHARACTERS`."""
    line = " ".join(text.strip().partition("\n")[0].split())
    return line if len(line) <= EXCERPT_CHARACTERS else f"{line[:EXCERPT_CHARACTERS]}…"
