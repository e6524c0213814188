"""A whole rollout as rules and the judge read it, and what a rule is.

A `RolloutTrace` has the closed steps, scores, forks and task of one rollout. It is read from the
journal in pages and keeps neither token ids nor log-probabilities, so that thousands of steps fit
into memory. A rollout whose texts are gone is refused. `RuleFinding` and `Rule` are the types that
every rule is written with.
"""

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from houston_daemon.review.attention_window import (
    EVALUATION,
    ObservedCall,
    ObservedStep,
    observe_record,
)
from houston_shared.context_messages import with_critique
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES, StepRecord
from houston_shared.store import removed_data_queries, rollout_queries, step_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.rollout_queries import ForkRow
from houston_shared.store.store_reader import Reader
from houston_shared.task import Task, parse_task_record
from houston_shared.task_tables import RuleSettings

STEPS_PER_PAGE = 100
"""Steps that are read at once: their token ids are in memory only so long."""
SCORED_STATE = "scored"


class TextsUnavailable(HoustonError):
    """A rollout was archived, or something of it was erased: it cannot be judged any more."""


class ScoredStep(NamedTuple):
    """A submission that gave a score."""

    step: int
    score: float
    """0 to 100."""


@dataclass(frozen=True, slots=True)
class RolloutTrace:
    """One rollout as it stood when it was read."""

    rollout: str
    task: Task
    """As it was when the rollout was started."""
    instructions: str
    gpus: Mapping[str, int]
    """Host → GPUs that the rollout leases there; empty where its task leases none."""
    steps: Sequence[StepRecord]
    """Closed steps by number, current attempts; of a branch the past that it shares, too. Their
    samples have neither token ids nor log-probabilities."""
    forks: Sequence[ForkRow] = ()
    ended: bool = False
    """Whether it is finished, failed or cancelled: nothing follows its last step."""
    observed_steps: Sequence[ObservedStep] = field(init=False)
    """The same steps as signals and rules see them: small, typed, in the same order."""
    _scores: tuple[ScoredStep, ...] = field(init=False)
    _numbers: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        observed = tuple(step for step in map(observe_record, self.steps) if step is not None)
        put = object.__setattr__
        put(self, "observed_steps", observed)
        put(self, "_scores", tuple(scored for step in observed for scored in _step_scores(step)))
        put(self, "_numbers", tuple(step.step for step in self.steps))

    @property
    def pairs(self) -> list[tuple[StepRecord, ObservedStep]]:
        """Each step as the journal has it, and as rules see it."""
        return list(zip(self.steps, self.observed_steps, strict=True))

    @property
    def scores(self) -> tuple[ScoredStep, ...]:
        """Submissions that gave a score, in order; a step may have several."""
        return self._scores

    @property
    def best(self) -> float | None:
        """The highest score; None where there is none."""
        return max((scored.score for scored in self._scores), default=None)

    def step(self, number: int) -> StepRecord | None:
        """The step with this number; None where it is not there (open, or set aside)."""
        place = bisect_left(self._numbers, number)
        exists = place < len(self._numbers) and self._numbers[place] == number
        return self.steps[place] if exists else None

    def before(self, number: int) -> Sequence[StepRecord]:
        """Steps with smaller numbers, in order."""
        return self.steps[: bisect_left(self._numbers, number)]


def read_trace(reader: Reader, rollout: str, cached: Sequence[StepRecord] = ()) -> RolloutTrace:
    """The rollout with this whole id, read with a short transaction per page: it blocks no writer.

    cached: its steps from an earlier read; only those that closed or were replaced since are read.
    Steps that close meanwhile are left out. Raises TextsUnavailable, and HoustonError where its
    specification was erased, or its task cannot be read.
    """
    frame = reader.run(_trace_frame(rollout))
    last = reader.run(step_queries.find_last_step(rollout))
    same = reader.run(_unchanged_steps(rollout, cached)) if cached else []
    begin = same[-1].step + 1 if same else 1
    pages = (
        reader.run(_trace_page(rollout, first)) for first in range(begin, last + 1, STEPS_PER_PAGE)
    )
    new = (step for page in pages for step in page if step.step <= last)
    trace = dataclasses.replace(frame, steps=(*same, *new))
    reader.run(require_all_texts(rollout))  # it may have been archived meanwhile
    return trace


def require_all_texts(rollout: str) -> ReadPlan[None]:
    """Raises TextsUnavailable where texts of the rollout (a whole id), or of its past, are gone."""
    if lost := (yield from removed_data_queries.find_missing_data(rollout)):
        command = lost.command or f"houston verdict {rollout}, for its earlier verdicts"
        raise TextsUnavailable(lost.cause, "Nothing was judged.", command)


def _trace_frame(rollout: str) -> ReadPlan[RolloutTrace]:
    """Everything but the steps."""
    yield from require_all_texts(rollout)
    row = yield from rollout_queries.find_rollout(rollout)
    spec = yield from rollout_queries.read_rollout_spec(row)
    forks = yield from rollout_queries.list_forks(row.id)
    task = parse_task_record(spec.task)
    words = with_critique(spec.task.instructions, spec.refines)
    return RolloutTrace(row.id, task, words, spec.gpus, (), tuple(forks), row.state in ENDED_STATES)


def _unchanged_steps(rollout: str, cached: Sequence[StepRecord]) -> ReadPlan[list[StepRecord]]:
    """The first of the cached steps, as far as the journal still has them."""
    rows = yield from step_queries.list_step_rows(rollout)
    closed = [row for row in rows if row.observation_seq is not None]
    pairs = zip(cached, closed, strict=False)
    position = attrgetter("sample_seq", "step", "attempt")
    return [
        step for step, _ in takewhile(lambda pair: position(pair[0]) == position(pair[1]), pairs)
    ]


def _trace_page(rollout: str, first: int) -> ReadPlan[list[StepRecord]]:
    """Closed steps of a page, without ids."""
    steps = yield from step_queries.read_steps(rollout, first, first + STEPS_PER_PAGE - 1)
    return [_without_token_ids(step) for step in steps if step.observation is not None]


def _without_token_ids(step: StepRecord) -> StepRecord:
    sample = replace(step.sample, new_prompt_ids=None, token_ids=None, logprobs=None)
    return replace(step, sample=sample)


def _step_scores(step: ObservedStep) -> list[ScoredStep]:
    return [
        ScoredStep(step.step, points)
        for call in step.calls
        if (points := scored_points(call)) is not None
    ]


def scored_points(call: ObservedCall) -> float | None:
    """The score that an evaluation gave, 0 to 100; None for a call that gave none."""
    score = call.fields.get("overall_score")
    gave_score = call.kind == EVALUATION and call.fields.get("state", SCORED_STATE) == SCORED_STATE
    return float(score) if gave_score and isinstance(score, int | float) else None


class RuleFinding(NamedTuple):
    """A step that should not be learned, and why."""

    step: int
    reason: str
    """A few words, without the rule's name."""


RuleFunction: TypeAlias = Callable[[RolloutTrace, RuleSettings], Iterable[RuleFinding]]
"""A rule: a pure function of the rollout and the task's `[rules]`; it may find a step twice."""


class Rule(NamedTuple):
    """One of the catalog."""

    version: int
    """Raised when it masks in other cases than before."""
    masks: RuleFunction
