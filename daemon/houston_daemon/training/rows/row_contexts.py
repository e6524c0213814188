"""A rollout's contexts as the agent had them, entry by entry: the source of rendered rows and chat
rows.

The functions that a resumed worker uses build each context, so that a row shows what a prompt would
have shown; one context is in memory at a time. It also gives the weight of an answer in a context
that kept it over a fork. `chat_rows` and `rendered_rows` decide what a row looks like.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from houston_daemon.agent import context_summary_prompt
from houston_daemon.agent.resumed_context import rebuild_context
from houston_daemon.prompts.context_ledger import Context, ContextEntry
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.training.rows import answer_soundness
from houston_daemon.training.rows.answer_soundness import ReservedTokens
from houston_daemon.training.rows.rollout_plan import NO_ROWS_MESSAGE
from houston_daemon.training.rows.row_weights import (
    AnswerFacts,
    AnswerWeight,
    PlannedContext,
    PlannedStep,
    RolloutPlan,
    compute_answer_weight,
    ends_with_stop,
    no_action_reason,
    weigh_summary,
    weight_of_copy,
)
from houston_daemon.training.rows.training_row import RowOptions, has_foreign_ids
from houston_shared.errors import HoustonError
from houston_shared.records import (
    ContextHead,
    DeliveredGuidance,
    ForkBody,
    Message,
    SampleBody,
    StepRecord,
)
from houston_shared.store import journal_events, rollout_queries, step_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.rollout_queries import ForkRow
from houston_shared.store.step_context import read_kept_guidance
from houston_shared.store.store_reader import Reader

STEPS_PER_PAGE = 64
"""Steps that are read at once."""
RendererView = Callable[[SampleBody], SampleBody]
"""What of a sample the renderer may see: ids of another tokenizer are none of its business."""


@dataclass(frozen=True, slots=True)
class ContextStep:
    """One step as it stands in a context."""

    planned: PlannedStep
    record: StepRecord
    entry: ContextEntry
    sampled_in_context: int
    """Number of the context that it was sampled in; of this one unless a fork kept it."""
    stopped: bool
    """Whether its ids ended with a stop token; true where that cannot be told."""
    forged: str | None
    """Why its sampled ids are a forged turn (`answer_soundness`); empty when they are none, None
    where they are not known."""


@dataclass(frozen=True, slots=True)
class WalkedContext:
    """One context."""

    plan: PlannedContext
    head: ContextHead
    context: Context
    """As it stood after its last step."""
    steps: tuple[ContextStep, ...]
    """Its steps, in order; those that its fork kept come first."""

    @property
    def fork_entries(self) -> tuple[ContextEntry, ...]:
        """What stands before the first step: the pair of the fork."""
        return tuple(self.context.entries[: 1 if self.plan.begin_fork else 0])


def walk_contexts(
    reader: Reader,
    plan: RolloutPlan,
    renderer: PromptRenderer,
    head: ContextHead,
    view: RendererView,
) -> Iterator[WalkedContext]:
    """Every context of a rollout in which a step was sampled, in order.

    Raises HoustonError when the ledger contradicts itself.
    """
    reserved = answer_soundness.reserved_of_head(plan.head)
    planned = {step.number: (context, step) for context in plan.contexts for step in context.steps}
    sampled: list[_SampledStep] = []
    for context in plan.contexts:
        if not context.steps:
            continue
        first_kept = context.kept_from - 1 if context.begin_fork else 1
        sampled = [step for step in sampled if step.record.step >= first_kept]
        sampled += _read_steps(reader, plan.rollout, context, view, reserved)
        fork, guidance = reader.run(_fork_of_context(plan.rollout, context))
        records = [step.record for step in sampled]
        rebuilt = rebuild_context(renderer, head, records, fork, guidance).context
        skip = 1 if fork else 0  # the pair of the fork
        steps = []
        pairs = zip(sampled[skip:], rebuilt.entries[skip:], strict=True)
        for (record, stopped, forged), entry in pairs:
            home, step = planned[record.step]
            steps.append(ContextStep(step, record, entry, home.number, stopped, forged))
        yield WalkedContext(context, head, rebuilt, tuple(steps))


class _SampledStep(NamedTuple):
    """A step as it was read; see `ContextStep`."""

    record: StepRecord
    stopped: bool
    forged: str | None


def _read_steps(
    reader: Reader,
    rollout: str,
    context: PlannedContext,
    view: RendererView,
    reserved: ReservedTokens | None,
) -> Iterator[_SampledStep]:
    """The steps that were sampled in a context, page by page."""
    last = context.steps[-1].number
    for start in range(context.steps[0].number, last + 1, STEPS_PER_PAGE):
        end = min(last, start + STEPS_PER_PAGE - 1)
        for record in reader.run(step_queries.read_steps(rollout, start, end)):
            forged = answer_soundness.forged_turn_reason(reserved, record.sample)
            yield _SampledStep(_closed_record(record, view), _sample_ended(record.sample), forged)


def _closed_record(record: StepRecord, view: RendererView) -> StepRecord:
    if record.observation is None:
        raise HoustonError(
            f"Step {record.step} was closed and is open again: a repair changed it meanwhile.",
            NO_ROWS_MESSAGE,
            "try again",
        )
    return replace(record, sample=view(record.sample))


def _sample_ended(sample: SampleBody) -> bool:
    return ends_with_stop(sample.token_ids, sample.parameters.get("stop_token_ids"))


def _fork_of_context(
    rollout: str, context: PlannedContext
) -> ReadPlan[tuple[ForkBody | None, Sequence[DeliveredGuidance]]]:
    if context.begin_fork is None:
        return None, ()
    body = yield from rollout_queries.read_fork_body(context.begin_fork)
    guidance = yield from read_kept_guidance(rollout, context.begin_fork, body)
    # Of a home from before forks named the step that they come before.
    return replace(body, before=context.begin_fork.step), guidance


def query_summary_sample(seq: int) -> ReadPlan[SampleBody]:
    """What the model wrote as a summary."""
    event = (yield from journal_events.events_by_seq([seq])).get(seq)
    if event is None or event.erased:
        raise HoustonError(
            f"The summary at event {seq} is gone.", NO_ROWS_MESSAGE, "houston verify"
        )
    return (
        yield from journal_events.read_event_record(event, SampleBody, step_queries.ERASED_SAMPLE)
    )


def answer_facts(
    sample: SampleBody, ended: bool = True, empty: bool = False, unfit: str = ""
) -> AnswerFacts:
    """What of a sample decides its weight. ended: whether its ids ended with a stop token, where
    the sample has lost them; empty: whether nothing of it is left that a model wrote; unfit: why it
    may not be trained (`answer_soundness`)."""
    no_action = no_action_reason(sample.malformed, [call.error for call in sample.calls])
    ended = ended and _sample_ended(sample)
    return AnswerFacts(sample.finish_reason, no_action, empty, ended, unfit)


class ContextPart(NamedTuple):
    """One entry of a context as it stands in a request."""

    step: ContextStep | None
    """The step that it is; None for the pair of an earlier fork."""
    ids: Sequence[int]
    messages: Sequence[Message]


class ContextRows:
    """One context of a rollout, of which rows are made."""

    def __init__(
        self,
        plan: RolloutPlan,
        options: RowOptions,
        renderer: PromptRenderer,
        walked: WalkedContext,
    ) -> None:
        self.plan = plan
        self.options = options
        self.renderer = renderer
        self.walked = walked
        self.name = plan.row_id(walked.plan.number)
        """Id of the row of its actions."""
        self.summary_name = plan.summary_row_id(walked.plan.number + 1)
        """Id of the row of the summary that replaced it."""

    def trained_summary(self, reader: Reader) -> tuple[ForkRow, SampleBody] | None:
        """The fork that replaced it and what a model wrote as its summary, where that is to be
        trained: without ids that are not the rollout's."""
        if (summary := self.walked.plan.summary_to_train(self.options)) is None:
            return None
        fork, seq = summary
        sample = reader.run(query_summary_sample(seq))
        if has_foreign_ids(self.plan.head, sample.tokenizer, sample.new_prompt_ids):
            sample = replace(sample, token_ids=None, new_prompt_ids=None)
        return fork, sample

    def summary_request_parts(self, fork: ForkRow) -> Iterator[ContextPart]:
        """What the summary was asked about: the first k entries, the last one with the request."""
        by_step = {step.record.step: step for step in self.walked.steps}
        entries = self.walked.context.entries[: fork.k]
        for entry in entries:
            step = None if entry.summary else by_step[entry.step]
            if entry is entries[-1]:
                request = self.renderer.asking(entry, context_summary_prompt.SUMMARY_REQUEST)
                yield ContextPart(step, *request)
            else:
                yield ContextPart(step, entry.ids, entry.messages)

    def weight(self, step: ContextStep, row: str, empty: bool) -> AnswerWeight:
        """What the answer of a step weighs in the row with this id."""
        facts = answer_facts(step.record.sample, step.stopped, empty, self.unfit(step))
        weight = compute_answer_weight(step.planned, facts, self.options)
        own_row = self.plan.row_id(step.sampled_in_context)
        if row == own_row or (self.options.overlap == "paper" and "/summary." not in row):
            return weight
        return weight_of_copy(weight, own_row)

    def unfit(self, step: ContextStep) -> str:
        """Why the answer of a step may not be trained."""
        return step.forged or ""

    def summary_weight(self, sample: SampleBody, unfit: str | None) -> AnswerWeight:
        """What the summary weighs. unfit: why it may not be trained."""
        return weigh_summary(answer_facts(sample, unfit=unfit or ""), self.options)

    def forged_reason(self, sample: SampleBody) -> str | None:
        """Why the summary's ids are a forged turn, as of a step (`ContextStep.forged`)."""
        return answer_soundness.forged_turn_reason(
            answer_soundness.reserved_of_head(self.plan.head), sample
        )
