"""Rows whose ids are the ledger's: what was sent and what was sampled, and nothing else.

The rollout is walked once, in the order in which it was sampled: a sample whose prompt continues
exactly where the one before ended belongs to the same row, any other begins a new one. Nothing is
rendered or tokenised.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from houston_daemon.engines import logprob_kind
from houston_daemon.training.rows import answer_soundness
from houston_daemon.training.rows.answer_soundness import ReservedTokens
from houston_daemon.training.rows.rollout_plan import NO_ROWS_MESSAGE
from houston_daemon.training.rows.row_weights import (
    AnswerFacts,
    AnswerWeight,
    PlannedContext,
    PlannedStep,
    RolloutPlan,
    ends_with_stop,
    no_action_reason,
    weigh_answer,
    weigh_summary,
)
from houston_daemon.training.rows.token_sequence import SampledAnswer, TokenSequence
from houston_daemon.training.rows.training_row import RowOptions, TokenRow, check_role
from houston_shared.errors import HoustonError
from houston_shared.records import PURIFICATION_KEY, LogprobKind, SampleRole
from houston_shared.store import journal_events, step_context
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.store_reader import Reader

SAMPLES_PER_PAGE = 64
"""Samples that are read at once."""


class CallFacts(msgspec.Struct, frozen=True):
    """What a call has for rows."""

    error: str = ""


class SampleFacts(msgspec.Struct, frozen=True):
    """What a sample's body has for rows; decoding passes over its texts."""

    parent_seq: int | None
    kept: int
    new_prompt_ids: list[int] | None
    token_ids: list[int] | None
    logprobs: list[float] | None
    logprob_kind: LogprobKind
    finish_reason: str
    policy: str
    parameters: dict[str, msgspec.Raw]
    malformed: str = ""
    calls: tuple[CallFacts, ...] = ()
    prompt_tokens: int | None = None
    policy_hash: str = ""
    role: str = ""

    def answer(self, reserved: ReservedTokens | None) -> AnswerFacts:
        """What of it decides its weight. reserved: tokens that it may not hold."""
        ids = self.token_ids or ()
        unfit = reserved.forged(ids, self.finish_reason) if reserved else ""
        why = no_action_reason(self.malformed, [call.error for call in self.calls])
        return AnswerFacts(self.finish_reason, why, stopped=self._stopped, unfit=unfit)

    @property
    def purified(self) -> bool:
        """Whether purification put it together, so that nobody sampled it as it stands."""
        return PURIFICATION_KEY in self.parameters

    @property
    def _named(self) -> dict[str, Any]:
        """Parameters of which rows know the meaning; lists of ids among the others are long."""
        known = {
            one: raw for one, raw in self.parameters.items() if one in logprob_kind.NEUTRAL_SAMPLING
        }
        return {one: msgspec.msgpack.decode(raw) for one, raw in known.items()}

    @property
    def _stopped(self) -> bool:
        raw = self.parameters.get("stop_token_ids")
        return ends_with_stop(
            self.token_ids, msgspec.msgpack.decode(raw, type=list[int]) if raw else []
        )

    def sampled(self, seq: int, step: int, attempt: int, role: SampleRole) -> SampledAnswer:
        """What was sampled, for a row; nothing where the engine lost its ids."""
        check_role(self.role, role, step)
        sampling = logprob_kind.sampling_parameters(self._named)
        return SampledAnswer(
            ids=array("i", self.token_ids or ()),
            logprobs=None if self.logprobs is None else array("f", self.logprobs),
            step=step,
            attempt=attempt,
            role=role,
            seq=seq,
            policy=self.policy,
            policy_hash=self.policy_hash,
            logprob_kind=logprob_kind.true_logprob_kind(self.logprob_kind, sampling),
            sampling=sampling,
            guided="grammar" in self.parameters,
        )


def make_recorded_rows(
    reader: Reader, plan: RolloutPlan, options: RowOptions
) -> Iterator[TokenRow]:
    """Rows of a rollout in its order: each context, then the summary that replaced it.

    Contexts of a branch that other rollouts train whole are passed over. Raises HoustonError when
    the ledger is broken or something of it was erased.
    """
    sequence = TokenSequence(plan, options)
    for context in plan.contexts:
        yield from _context_rows(reader, plan, context, options, sequence)
        yield from make_summary_row(reader, plan, context, options, sequence)


def make_summary_row(
    reader: Reader,
    plan: RolloutPlan,
    context: PlannedContext,
    options: RowOptions,
    sequence: TokenSequence | None = None,
) -> Iterator[TokenRow]:
    """The row of the summary that replaced `context`, where the model wrote it and it is wanted.

    sequence: the context as it stood then; without it the answers in the prompt are not marked.
    """
    fork, seq = context.end_fork, context.summary_seq
    if fork is None or seq is None or not options.summaries:
        return
    body = reader.run(_query_samples([seq])).get(seq)
    if body is None:
        raise _broken_error(seq)
    asked = sequence.branch() if sequence else TokenSequence(plan, options)
    asked.open(plan.summary_row_id(context.number + 1), context.number)
    _follow_prompt(reader, asked, seq, body, None)
    said = body.sampled(seq, fork.step, 1, "summary")
    weight = weigh_summary(body.answer(answer_soundness.reserved_of_head(plan.head)), options)
    asked.add_answer(said, weight)
    yield from asked.rows("summary")


def _context_rows(
    reader: Reader,
    plan: RolloutPlan,
    context: PlannedContext,
    options: RowOptions,
    sequence: TokenSequence,
) -> Iterator[TokenRow]:
    part, reserved = 0, answer_soundness.reserved_of_head(plan.head)
    sequence.open(plan.row_id(context.number), context.number)
    for step, body in _sample_pages(reader, context.steps):
        seq = step.row.sample_seq
        if sequence.has_grown and not sequence.continues(body.parent_seq, body.kept):
            yield from sequence.rows("react")
            part += 1
            sequence.open(plan.row_id(context.number, part), context.number, part)
        _follow_prompt(reader, sequence, seq, body, context.kept_from)
        said = body.sampled(seq, step.number, step.row.attempt, "policy")
        weight = weigh_answer(step, body.answer(reserved), options)
        raw = sequence.branch() if body.purified and step.others else None
        if raw is not None:
            reason = f"put together by purification; sampled in row {plan.raw_row_id(step.number)}"
            weight = AnswerWeight(0.0, reason, "")
        sequence.add_answer(said, weight, own=not step.trained_in_rollout)
        if step.others:
            raw = raw or sequence.branch()
            yield from _raw_rows(reader, plan, context, step, options, raw)
    yield from sequence.rows("react")


def _raw_rows(
    reader: Reader,
    plan: RolloutPlan,
    context: PlannedContext,
    step: PlannedStep,
    options: RowOptions,
    sequence: TokenSequence,
) -> Iterator[TokenRow]:
    """The row of the attempts at a step that do not count, each after what it was sampled after.

    sequence: the context as it stood before the first of them.
    """
    sequence.open(plan.raw_row_id(step.number), context.number)
    reserved = answer_soundness.reserved_of_head(plan.head)
    for attempt, body in _sample_pages(reader, step.others):
        seq, number = attempt.row.sample_seq, attempt.row.attempt
        _follow_prompt(reader, sequence, seq, body, context.kept_from)
        said = body.sampled(seq, step.number, number, "policy" if number == 1 else "lookahead")
        weight = weigh_answer(attempt, body.answer(reserved), options)
        sequence.add_answer(said, weight, own=not step.trained_in_rollout)
    yield from sequence.rows("react")


def _follow_prompt(
    reader: Reader, sequence: TokenSequence, seq: int, body: SampleFacts, kept_from: int | None
) -> None:
    """Bring the sequence to the prompt of a sample.

    kept_from: as `TokenSequence.begin_prompt` wants it.
    """
    if body.new_prompt_ids is None:
        raise _broken_error(seq)
    if body.parent_seq == sequence.seq:
        if body.kept > len(sequence.ids):
            raise _broken_error(seq)
        sequence.continue_prompt(body.kept, body.new_prompt_ids)
    else:
        sequence.begin_prompt(_read_prompt(reader, seq), kept_from)
    if body.prompt_tokens not in (None, len(sequence.ids)):
        raise _broken_error(seq)


def _read_prompt(reader: Reader, seq: int) -> list[int]:
    try:
        found = reader.run(step_context.read_prompt_ids(seq))
    except step_context.TokenIdsErased:
        raise _erased_error(seq) from None
    if found is None:
        raise _broken_error(seq)
    return found


def _sample_pages(
    reader: Reader, steps: Sequence[PlannedStep]
) -> Iterator[tuple[PlannedStep, SampleFacts]]:
    for start in range(0, len(steps), SAMPLES_PER_PAGE):
        page = steps[start : start + SAMPLES_PER_PAGE]
        bodies = reader.run(_query_samples([step.row.sample_seq for step in page]))
        for step in page:
            body = bodies.get(step.row.sample_seq)
            if body is None:
                raise _broken_error(step.row.sample_seq)
            yield step, body


def _query_samples(seqs: Sequence[int]) -> ReadPlan[dict[int, SampleFacts]]:
    found: dict[int, SampleFacts] = {}
    for seq, event in (yield from journal_events.events_by_seq(seqs)).items():
        raw = None if event.erased else (yield from journal_events.read_event_body(event))
        if raw is None:
            raise _erased_error(seq)
        try:
            found[seq] = msgspec.msgpack.decode(raw, type=SampleFacts)
        except msgspec.MsgspecError:
            raise _broken_error(seq) from None
    return found


def _erased_error(seq: int) -> HoustonError:
    return HoustonError(
        f"Token ids of event {seq} were erased from the journal.",
        NO_ROWS_MESSAGE,
        "Leave its rollout out.",
    )


def _broken_error(seq: int) -> HoustonError:
    return HoustonError(
        f"The ledger is broken at event {seq}: its prompt cannot be told.",
        NO_ROWS_MESSAGE,
        "houston verify",
    )
