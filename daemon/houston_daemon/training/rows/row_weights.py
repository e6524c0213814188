"""Which step is trained in which row, and what it weighs: how verdicts, interruptions and cut
answers combine.

`RolloutPlan`, `PlannedContext` and `PlannedStep` hold what decides it; `compute_answer_weight`
gives the weight of an answer with its reason and source, in a fixed order of precedence. Pure
decisions: it reads nothing and knows neither ids nor messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from houston_daemon.training.rows.training_row import Provenance, RowOptions
from houston_shared.records import ContextHead, ThoughtHandling
from houston_shared.sample_roles import SampleRole
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.store.rollout_queries import ForkRow
from houston_shared.store.step_queries import StepRow

INTERRUPTED = "interrupted"
"""How a sample ends that a person cut."""
UNJUDGED = "not judged"
"""Stands for the source of a verdict where there is none."""
_INTERRUPTED_REASON = "interrupted by a person: what was sampled is no action"
_FAILED_REASON = "failed: another attempt counts"
_CUT_REASON = "cut at its limit of tokens: it has no stop token"
_UNSTOPPED_REASON = "ended without a stop token of its dialect"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A closed step, by the context it was sampled in."""

    row: StepRow
    """Its current attempt; of the rollout whose step it is."""
    verdict: SourceVerdict | None
    """The verdict that counts; None where nobody judged it."""
    trained_in_rollout: str
    """The rollout whose rows train it, where that is not this one."""
    others: tuple["PlannedStep", ...] = ()
    """Other attempts at it, in order; only where raw attempts are asked for."""
    role: SampleRole = "policy"
    """The role whose answers are the steps of its rollout."""

    @property
    def number(self) -> int:
        """Number of the step."""
        return self.row.step


@dataclass(frozen=True, slots=True)
class PlannedContext:
    """One context: between two forks."""

    number: int
    """0 before the first fork."""
    begin_fork: ForkRow | None
    """The fork that it began with."""
    end_fork: ForkRow | None
    """The fork that replaced it."""
    steps: tuple[PlannedStep, ...]
    """Steps that were sampled in it, in order."""
    summary_elsewhere: str
    """The rollout that trains the summary of `end_fork`, where that is not this one."""

    @property
    def kept_from(self) -> int:
        """First step that stands in it as it is: sampled in it, or kept over its fork."""
        return self.begin_fork.first_kept_step if self.begin_fork else 1

    def summary_to_train(self, options: RowOptions) -> tuple[ForkRow, int] | None:
        """The fork that replaced it and the sample of its summary, where a model wrote it, it is to
        be trained, and this rollout trains it."""
        fork = self.end_fork
        if fork is None or fork.sample_seq is None or "summary" not in options.roles:
            return None
        return None if self.summary_elsewhere else (fork, fork.sample_seq)

    @property
    def own(self) -> bool:
        """Whether a step of it is this rollout's to train."""
        return any(not step.trained_in_rollout for step in self.steps)


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Everything that decides the rows of a rollout, except its texts and ids."""

    rollout: str
    task: str
    group: str
    domain: str
    engine: str
    provenance: Provenance
    thoughts: ThoughtHandling
    """How the rollout ran."""
    reasoning: bool
    """Whether its answers opened for reasoning."""
    head: ContextHead | None
    """None before the first prompt: then there is no row."""
    contexts: tuple[PlannedContext, ...]
    step_role: SampleRole = "policy"
    """The role whose answers are its steps: `planner` for a flow."""

    def row_id(self, context: int, part: int = 0) -> str:
        """Id of a row of actions."""
        return f"{self.rollout}/{context}.{part}"

    def raw_row_id(self, step: int) -> str:
        """Id of the row of what was sampled at a step that purification replaced, or tried to."""
        return f"{self.rollout}/raw.{step}"

    def summary_row_id(self, fork: int) -> str:
        """Id of the row of the n-th summary, from 1."""
        return f"{self.rollout}/summary.{fork}"


class AnswerFacts(NamedTuple):
    """What of a sample decides its weight, beside verdicts."""

    finish_reason: str
    no_action: str
    """Why it is no action: nothing could be read from it, it has no call, or none that can be run;
    empty where it is one."""
    empty: bool = False
    """Whether nothing is left of it that a model wrote."""
    stopped: bool = True
    """Whether it ends with a stop token of its dialect, where that can be told."""
    unfit: str = ""
    """Why it may not be trained, whatever the verdict (`answer_soundness`); empty where it may."""

    @property
    def missing_stop_reason(self) -> str:
        """Why it has no stop token to train; empty where it has one."""
        if self.finish_reason == "length":
            return _CUT_REASON
        return "" if self.stopped else _UNSTOPPED_REASON


def ends_with_stop(ids: Sequence[int] | None, stops: Sequence[int] | None) -> bool:
    """Whether an answer ends with one of the ids that were to end it; true where that cannot be
    told."""
    return not ids or not stops or ids[-1] in stops


def no_action_reason(malformed: str, errors: Sequence[str]) -> str:
    """Why an answer is no action; empty where it is one.

    errors: of each of its calls, why it cannot be run, empty where it can.
    """
    if malformed:
        return malformed
    return "" if not all(errors) else next(iter(errors), "it has no call")


class AnswerWeight(NamedTuple):
    """What an answer weighs, and why."""

    weight: float
    reason: str
    source: str
    everywhere: bool = False
    """Whether copies of it have the same reason: no row of this rollout is to train it."""


def compute_answer_weight(
    step: PlannedStep, answer: AnswerFacts, options: RowOptions
) -> AnswerWeight:
    """The weight of an answer in the row that trains it.

    The first that applies: a role that is not trained; a step of another rollout's rows; an answer
    that a person interrupted, that is empty, forged or not read back as it was (never trained);
    anything else if masking is off, except what a person masked under `people_mask`; a verdict to
    mask; an attempt that failed and does not count; an answer without a stop token, unless a person
    says `keep`; a verdict to keep; an answer that is no action; and last what nobody judged.
    """
    if step.role not in options.roles:
        return AnswerWeight(0.0, f"role {step.role}: it is not trained", "", everywhere=True)
    weight = _weigh_own(step, answer, options)
    if not step.trained_in_rollout:
        return weight
    outcome = "trained" if weight.weight else "masked"
    reason = f"{outcome} with rollout {step.trained_in_rollout}"
    return AnswerWeight(0.0, reason, "", everywhere=True)


def _weigh_own(step: PlannedStep, answer: AnswerFacts, options: RowOptions) -> AnswerWeight:
    verdict = step.verdict
    by = verdict.source if verdict else ""
    if answer.finish_reason == INTERRUPTED:
        return AnswerWeight(0.0, _INTERRUPTED_REASON, "")
    if answer.empty:
        return AnswerWeight(0.0, "the answer is empty", "")
    if answer.unfit:
        return AnswerWeight(0.0, answer.unfit, "")
    masks = options.masking or (options.people_mask and by == "human")
    if masks and verdict and verdict.verdict == "mask":
        return AnswerWeight(0.0, f"mask: {verdict.source} {verdict.reason}".rstrip(), by)
    if not options.masking:
        return AnswerWeight(1.0, "", "")
    if step.row.errors and not step.row.current:
        return AnswerWeight(0.0, _FAILED_REASON, "")
    if answer.missing_stop_reason and options.cut == "mask" and by != "human":
        return AnswerWeight(0.0, answer.missing_stop_reason, "")
    if verdict:
        return AnswerWeight(1.0, "", by)
    if answer.no_action:
        return AnswerWeight(0.0, f"no action: {answer.no_action}", "")
    if options.unjudged == "mask":
        return AnswerWeight(0.0, UNJUDGED, "")
    return AnswerWeight(1.0, "", UNJUDGED)


def weigh_summary(answer: AnswerFacts, options: RowOptions) -> AnswerWeight:
    """What a summary weighs that the model wrote and the rollout used."""
    if answer.unfit:
        return AnswerWeight(0.0, answer.unfit, "")
    if answer.missing_stop_reason and options.cut == "mask" and options.masking:
        return AnswerWeight(0.0, answer.missing_stop_reason, "")
    return AnswerWeight(1.0, "", "")


def weight_if_closed(weight: AnswerWeight, answer: AnswerFacts) -> AnswerWeight:
    """The weight if the renderer writes a stop token after the answer: an answer that did not stop
    is then never trained, because it would teach to stop there."""
    return (
        AnswerWeight(0.0, answer.missing_stop_reason, "")
        if weight.weight and answer.missing_stop_reason
        else weight
    )


def weight_of_copy(weight: AnswerWeight, row: str) -> AnswerWeight:
    """What a copy of an answer weighs in another row than its own, which has the reason."""
    if weight.everywhere:
        return weight
    return AnswerWeight(
        0.0, trained_in_reason(row) if weight.weight else f"masked in row {row}", ""
    )


def trained_in_reason(row: str) -> str:
    """Why a copy of an answer weighs nothing that the row with this id trains."""
    return f"trained in row {row}"
