"""Rows whose ids a dialect renders: for policies sampled elsewhere, and for contexts without
thoughts.

The agent's own renderer renders head and steps one after the other, never as one text, so that a
row has the ids that a rollout of the trained model would see. An answer is trained as the dialect
writes it, with the token that closes it.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from houston_daemon.engines.logprob_kind import sampling_parameters
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.training.rows import recorded_rows as ledger_rows
from houston_daemon.training.rows.answer_soundness import (
    NOT_READ_BACK,
    ReservedTokens,
    not_read_back_reason,
)
from houston_daemon.training.rows.row_contexts import (
    ContextRows,
    ContextStep,
    WalkedContext,
    answer_facts,
    walk_contexts,
)
from houston_daemon.training.rows.row_weights import (
    AnswerFacts,
    AnswerWeight,
    PlannedContext,
    RolloutPlan,
)
from houston_daemon.training.rows.training_row import (
    RowKind,
    RowOptions,
    SampledSpan,
    TokenRow,
    check_role,
)
from houston_shared.records import ContextHead, SampleBody
from houston_shared.sample_roles import SampleRole
from houston_shared.store.rollout_queries import ForkRow
from houston_shared.store.store_reader import Reader

_OTHER_IDS_REASON = "the ledger has its answer in other ids than the dialect writes now"


@dataclass(frozen=True, slots=True)
class RowRenderer:
    """How one rollout is rendered."""

    renderer: PromptRenderer
    tokens: PromptTokenizer
    own: bool
    """Whether dialect and tokenizer are those that the rollout ran with: then the ids of its head,
    and of answers that stand as they were sampled, are the ledger's."""
    sampled_stripped: bool
    """Whether the ledger's prompts are these contexts: it ran so, without thoughts."""
    reserved: ReservedTokens
    """Tokens of the tokenizer that no answer may hold."""
    tools: Mapping[str, ToolSpec]
    """That the answers were to call."""
    short_tools: bool = False
    window: int = 0

    def head(self, head: ContextHead) -> ContextHead:
        """The head of the rows."""
        if self.own:
            return head
        tools = [*self.tools.values()]
        short = self.short_tools or self.renderer.shows_short(tools, self.window or None)
        return self.renderer.head(head.system, tools, head.task, short)

    def visible_sample(self, sample: SampleBody) -> SampleBody:
        """What of a sample may be used."""
        if self.sampled_stripped:
            return sample
        ids = sample.token_ids if self.own else None
        return replace(sample, token_ids=ids, new_prompt_ids=None, kept=0)

    def summary_ids(self, sample: SampleBody) -> Sequence[int]:
        """Ids of a summary as the model wrote it."""
        if self.own and sample.token_ids is not None:
            return sample.token_ids
        text = sample.thought.strip()  # the dialect writes the white space around an answer
        return self.tokens.encode(self.renderer.dialect.assistant(text, ()))

    def unfit(self, step: ContextStep) -> str:
        """Why the answer of a step may not be trained as it was rendered."""
        sample, ids = step.record.sample, step.entry.ids[: step.entry.answer]
        if step.forged or (sample.token_ids is not None and not step.entry.stripped):
            return step.forged or ""  # its ids are those that were sampled
        thought = "" if step.entry.stripped else sample.thought
        if step.forged is None and (why := self.reserved.forged_text_reason(thought, sample.calls)):
            return why
        text = self._without_stop(ids)
        return not_read_back_reason(self.renderer.dialect, text, thought, sample.calls, self.tools)

    def unfit_summary(self, sample: SampleBody, forged: str | None, ids: Sequence[int]) -> str:
        """The same of a summary. forged: as of a step; ids: as it was written."""
        if forged or (self.own and sample.token_ids is not None):
            return forged or ""
        if forged is None and (why := self.reserved.forged_text_reason(sample.thought, ())):
            return why
        same = self._without_stop(ids).strip() == sample.thought.strip()
        return "" if same else f"{NOT_READ_BACK}: another text in this dialect"

    def _without_stop(self, ids: Sequence[int]) -> str:
        ended = ids and ids[-1] in self.renderer.stops
        return self.tokens.decode(ids[:-1] if ended else ids)

    def has_sampled_ids(self, step: ContextStep) -> bool:
        """Whether an answer's ids end where its entry says, also where the ledger told them."""
        if not (self.sampled_stripped and step.entry.stripped):
            return True
        pieces = self.renderer.dialect.assistant("", step.record.sample.calls)
        return list(step.entry.ids[: step.entry.answer]) == self.tokens.encode(pieces)


def make_rendered_rows(
    reader: Reader, plan: RolloutPlan, options: RowOptions, rendering: RowRenderer
) -> Iterator[TokenRow]:
    """Rows of a rollout in its order: each context, then the summary that replaced it.

    Raises HoustonError when the ledger contradicts itself.
    """
    assert plan.head is not None
    head = rendering.head(plan.head)
    for walked in walk_contexts(reader, plan, rendering.renderer, head, rendering.visible_sample):
        rows = _RenderedContextRows(plan, options, rendering, walked)
        if walked.plan.own and plan.step_role in options.roles:
            yield rows.context()
        if rendering.sampled_stripped:
            # Its summaries were asked for in these contexts: exact from the ledger.
            yield from ledger_rows.make_summary_row(
                reader, plan, walked.plan, options, partial(_render_summary, reader, rows)
            )
        else:
            yield from _render_summary(reader, rows)


def _render_summary(
    reader: Reader, rows: "_RenderedContextRows", _: PlannedContext | None = None
) -> Iterator[TokenRow]:
    if summary := rows.trained_summary(reader):
        yield rows.summary(*summary)


def make_rendered_summaries(
    reader: Reader, plan: RolloutPlan, options: RowOptions, rendering: RowRenderer
) -> Callable[[PlannedContext], Iterator[TokenRow]]:
    """Makes the rendered row of one context's summary after the other, in their order."""
    assert plan.head is not None
    head = rendering.head(plan.head)
    walked = walk_contexts(reader, plan, rendering.renderer, head, rendering.visible_sample)

    def render(context: PlannedContext) -> Iterator[TokenRow]:
        match = next(candidate for candidate in walked if candidate.plan.number == context.number)
        yield from _render_summary(reader, _RenderedContextRows(plan, options, rendering, match))

    return render


class _RenderedContextRows(ContextRows):
    """Rows of one context."""

    def __init__(
        self, plan: RolloutPlan, options: RowOptions, rendering: RowRenderer, walked: WalkedContext
    ) -> None:
        super().__init__(plan, options, rendering.renderer, walked)
        self._rendering = rendering

    def unfit(self, step: ContextStep) -> str:
        """Also where its rendering is not read back."""
        return self._rendering.unfit(step)

    def context(self) -> TokenRow:
        """The row of its actions; it ends with the last answer."""
        walked = self.walked
        ids = array("i", walked.head.token_ids or ())
        for entry in walked.fork_entries:
            ids.extend(entry.ids)
        spans = []
        end = len(ids)
        for step in walked.steps:
            spans += self._spans(step, len(ids), self.name)
            end = len(ids) + step.entry.answer
            ids.extend(step.entry.ids)
        return self._row(self.name, "react", ids[:end], spans)

    def summary(self, fork: ForkRow, sample: SampleBody) -> TokenRow:
        """The row of the summary that the fork put in the place of its first k entries."""
        ids = array("i", self.walked.head.token_ids or ())
        spans: list[SampledSpan] = []
        for step, request, _ in self.summary_request_parts(fork):
            if step:
                spans += self._spans(step, len(ids), self.summary_name)
            ids.extend(request)
        start, summary = len(ids), self._rendering.summary_ids(sample)
        ids.extend(summary)
        end = start + self._sampled_count(summary, answer_facts(sample))
        unfit = self._rendering.unfit_summary(sample, self.forged_reason(sample), summary)
        weight = self.summary_weight(sample, unfit)
        span = _answer_span(
            start, end, sample, fork.step, 1, fork.sample_seq or 0, weight, "summary"
        )
        return self._row(self.summary_name, "summary", ids, [*spans, span])

    def _spans(self, step: ContextStep, start: int, row: str) -> list[SampledSpan]:
        sample, seq = step.record.sample, step.record.sample_seq
        answer = step.entry.ids[: step.entry.answer]
        size = self._sampled_count(answer, answer_facts(sample, step.stopped))
        if not size:
            return []
        weight = self.weight(step, row, _is_empty(sample))
        if not self._rendering.has_sampled_ids(step):
            weight = AnswerWeight(0.0, _OTHER_IDS_REASON, weight.source)
        end = start + size
        number, attempt = step.record.step, step.record.attempt
        role = self.plan.step_role
        return [_answer_span(start, end, sample, number, attempt, seq, weight, role)]

    def _sampled_count(self, ids: Sequence[int], facts: AnswerFacts) -> int:
        """How many of an answer's ids are the model's: the stop token with which the dialect closes
        an answer that did not stop is not, and training it would teach to stop there."""
        closing = facts.missing_stop_reason and ids and ids[-1] in self.renderer.stops
        return len(ids) - bool(closing)

    def _row(
        self, name: str, kind: RowKind, ids: "array[int]", spans: Sequence[SampledSpan]
    ) -> TokenRow:
        plan = self.plan
        return TokenRow(
            id=name,
            kind=kind,
            rollout=plan.rollout,
            task=plan.task,
            group=plan.group,
            domain=plan.domain,
            context=self.walked.plan.number,
            source="rendered",
            provenance=plan.provenance,
            token_ids=ids,
            spans=tuple(spans),
            dialect=self.renderer.dialect.name,
            tokenizer=self._rendering.tokens.path,
        )


def _answer_span(
    start: int,
    end: int,
    sample: SampleBody,
    step: int,
    attempt: int,
    seq: int,
    weight: AnswerWeight,
    role: SampleRole,
) -> SampledSpan:
    check_role(sample.role, role, step)
    return SampledSpan(
        start=start,
        end=end,
        step=step,
        attempt=attempt,
        role=role,
        sample_seq=seq,
        policy=sample.policy,
        policy_hash=sample.policy_hash,
        weight=weight.weight,
        why=weight.reason,
        logprob_kind="none",
        sampling=sampling_parameters(sample.parameters),
        guided="grammar" in sample.parameters,
        by=weight.source,
        engine=sample.engine,
    )


def _is_empty(sample: SampleBody) -> bool:
    return sample.token_ids is None and not sample.thought and not sample.calls


def tools_of_head(head: ContextHead) -> dict[str, ToolSpec]:
    """Tools by name, from OpenAI's form in which a head stores them."""
    specs = (tool["function"] for tool in head.tools)
    return {
        spec["name"]: ToolSpec(spec["name"], spec.get("description", ""), spec["parameters"])
        for spec in specs
    }
