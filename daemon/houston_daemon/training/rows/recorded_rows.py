"""Rows with the ledger's own ids: what was sent and what was sampled, and nothing else.

The rollout is read once, in the order in which it was sampled. A sample whose prompt continues
exactly where the sample before ended belongs to the same row; any other sample begins a new row. A
`TokenSequence` holds a context's ids as they grow, with the answers marked in them. It alone moves
marks when a prompt does not continue. Nothing is rendered or tokenised, and no weight is decided
here.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from houston_daemon.engines import logprob_kind
from houston_daemon.prompts.context_ledger import common_prefix_length
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
from houston_daemon.training.rows.training_row import (
    RowKind,
    RowOptions,
    SampledSpan,
    TokenRow,
    check_role,
    has_foreign_ids,
)
from houston_shared.errors import HoustonError
from houston_shared.records import PURIFICATION_KEY, LogprobKind
from houston_shared.sample_roles import SampleRole
from houston_shared.store import journal_events, step_context
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.store_reader import Reader

SAMPLES_PER_PAGE = 64
"""Samples that are read at once."""
_ID_BYTES = array("i").itemsize


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One answer as the row needs it."""

    ids: "array[int]"
    """With the stop token that ended it."""
    logprobs: "array[float] | None"
    step: int
    attempt: int
    role: SampleRole
    seq: int
    policy: str
    policy_hash: str
    logprob_kind: LogprobKind
    sampling: Mapping[str, Any]
    guided: bool
    engine: str
    corrected: int


@dataclass(frozen=True, slots=True)
class _AnswerMark:
    """Where an answer stands, and what it weighs in the row that trains it."""

    start: int
    end: int
    answer: SampledAnswer
    weight: AnswerWeight
    row: str
    """Id of the row that it was sampled in."""
    context: int
    in_place: bool = True
    """Whether what stands before it is what it was sampled after."""

    def moved(self, by: int) -> "_AnswerMark":
        """The same answer in a context that a fork began."""
        return replace(self, start=self.start + by, end=self.end + by, in_place=False)


class TokenSequence:
    """The ids of the newest prompt and of what was sampled after it."""

    def __init__(self, plan: RolloutPlan, options: RowOptions) -> None:
        self.ids = array("i")
        self.seq: int | None = None
        """The sample that `ids` ends with."""
        self._plan = plan
        self._paper = options.overlap == "paper"
        self._marks: list[_AnswerMark] = []
        self._entries: list[tuple[int, int]] = []
        """Each step that stands in the context, and where its answer begins."""
        self._row = ""
        self._context = 0
        self._is_first_part = True
        self._trains = False

    def open(self, row: str, context: int, part: int = 0) -> None:
        """What is sampled from now on belongs to the row with this id, the n-th of its context."""
        self._row, self._context, self._is_first_part, self._trains = row, context, part == 0, False

    def branch(self) -> "TokenSequence":
        """A sequence of its own that begins with what stands here: for a summary's request."""
        copied = copy(self)
        copied.ids, copied._marks, copied._entries = self.ids[:], [*self._marks], [*self._entries]
        return copied

    @property
    def has_grown(self) -> bool:
        """Whether an answer of the open row stands in it."""
        return any(mark.row == self._row for mark in self._marks)

    def continues(self, parent: int | None, prefix: int) -> bool:
        """Whether a prompt with this parent and prefix continues the whole sequence."""
        return parent == self.seq and prefix == len(self.ids)

    def continue_prompt(self, prefix: int, new: Sequence[int]) -> None:
        """The next prompt: the first `prefix` ids, then `new` ones."""
        self._cut(prefix)
        self.ids.extend(new)

    def begin_prompt(self, prompt: Sequence[int], kept_from: int | None) -> None:
        """The first prompt of a context. kept_from: the first step that it keeps as it is."""
        ids = array("i", prompt)
        start = next((at for step, at in self._entries if step == kept_from), None)
        first = common_prefix_length(self.ids, ids)
        marks = [mark for mark in self._marks if mark.end <= first]
        entries = [entry for entry in self._entries if entry[1] <= first]
        if start is not None and start >= first:
            position = unique_position(self.ids[start:], ids, first)
            if position is not None:
                by = position - start
                marks += [mark.moved(by) for mark in self._marks if mark.start >= start]
                entries += [(step, at + by) for step, at in self._entries if at >= start]
        self.ids, self._marks, self._entries = ids, marks, entries

    def add_answer(self, answer: SampledAnswer, weight: AnswerWeight, own: bool = True) -> None:
        """An answer after the prompt. own: whether it is for this rollout's rows to train."""
        start = len(self.ids)
        self._entries.append((answer.step, start))
        self.ids.extend(answer.ids)
        self.seq = answer.seq
        self._trains = self._trains or own
        if answer.ids:
            end = len(self.ids)
            self._marks.append(_AnswerMark(start, end, answer, weight, self._row, self._context))

    def rows(self, kind: RowKind) -> Iterator[TokenRow]:
        """The open row, if this rollout is to train any answer in it."""
        if not (self._trains and self.has_grown):
            return
        spans = [self._span(mark, kind) for mark in self._marks]
        plan = self._plan
        yield TokenRow(
            id=self._row,
            kind=kind,
            rollout=plan.rollout,
            task=plan.task,
            group=plan.group,
            domain=plan.domain,
            context=self._context,
            source="ledger",
            provenance=plan.provenance,
            token_ids=self.ids[:],
            spans=tuple(spans),
            logprobs={
                index: mark.answer.logprobs[: mark.end - mark.start]
                for index, mark in enumerate(self._marks)
                if mark.answer.logprobs is not None and mark.in_place
            },
            dialect=plan.head.dialect if plan.head else "",
            tokenizer=plan.head.tokenizer if plan.head else "",
        )

    def _span(self, mark: _AnswerMark, kind: RowKind) -> SampledSpan:
        weight, answer = mark.weight, mark.answer
        over_a_fork = self._paper and kind == "react" and mark.context != self._context
        if mark.row != self._row and not (over_a_fork and self._is_first_part):
            weight = weight_of_copy(weight, mark.row)
        return SampledSpan(
            start=mark.start,
            end=mark.end,
            step=answer.step,
            attempt=answer.attempt,
            role=answer.role,
            sample_seq=answer.seq,
            policy=answer.policy,
            policy_hash=answer.policy_hash,
            weight=weight.weight,
            why=weight.reason,
            logprob_kind=answer.logprob_kind if answer.logprobs is not None else "none",
            sampling=answer.sampling,
            guided=answer.guided,
            by=weight.source,
            engine=answer.engine,
            corrected=answer.corrected,
        )

    def _cut(self, prefix: int) -> None:
        if prefix >= len(self.ids):
            return
        del self.ids[prefix:]
        self._entries = [entry for entry in self._entries if entry[1] <= prefix]
        self._marks = [
            replace(mark, end=min(mark.end, prefix)) for mark in self._marks if mark.start < prefix
        ]


def unique_position(part: "array[int]", whole: "array[int]", first: int) -> int | None:
    """Where `part` stands in `whole` at or after `first`; None unless it is in one place only."""
    if not part:
        return None
    needle, haystack = part.tobytes(), whole.tobytes()
    positions: list[int] = []
    at = haystack.find(needle, first * _ID_BYTES)
    while at >= 0 and len(positions) < 2:
        if at % _ID_BYTES == 0:
            positions.append(at // _ID_BYTES)
        at = haystack.find(needle, at + 1)
    return positions[0] if len(positions) == 1 else None


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
    engine: str = ""
    tokenizer: str = ""

    def answer(self, reserved: ReservedTokens | None) -> AnswerFacts:
        """What of it decides its weight. reserved: tokens that it may not hold."""
        ids = self.token_ids or ()
        unfit = reserved.forged_reason(ids, self.finish_reason) if reserved else ""
        no_action = no_action_reason(self.malformed, [call.error for call in self.calls])
        raw = self.parameters.get("stop_token_ids")
        stops = msgspec.msgpack.decode(raw, type=list[int]) if raw else []
        stopped = ends_with_stop(self.token_ids, stops)
        return AnswerFacts(self.finish_reason, no_action, stopped=stopped, unfit=unfit)

    @property
    def purified(self) -> bool:
        """Whether purification put it together, so that nobody sampled it as it stands."""
        return PURIFICATION_KEY in self.parameters

    def sampled(self, seq: int, step: int, attempt: int, role: SampleRole) -> SampledAnswer:
        """What was sampled, for a row; nothing where the engine lost its ids."""
        check_role(self.role, role, step)
        # Only parameters of which rows know the meaning: lists of ids among the others are long.
        names = self.parameters.keys() & logprob_kind.NEUTRAL_SAMPLING.keys()
        decoded = {name: msgspec.msgpack.decode(self.parameters[name]) for name in names}
        sampling = logprob_kind.sampling_parameters(decoded)
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
            engine=self.engine,
            corrected=self._corrected_token_count(),
        )

    def _corrected_token_count(self) -> int:
        story = msgspec.msgpack.decode(self.parameters.get(PURIFICATION_KEY, b"\x80"))
        return int(story.get("corrected_tokens", 0))


def make_recorded_rows(
    reader: Reader,
    plan: RolloutPlan,
    options: RowOptions,
    render_summary: Callable[[PlannedContext], Iterator[TokenRow]],
) -> Iterator[TokenRow]:
    """Rows of a rollout in its order: each context, then the summary that replaced it.

    Contexts of a branch are skipped if other rollouts train all of them. render_summary: makes the
    row of a summary whose ids are not of the head's dialect and tokenizer. Raises HoustonError when
    the ledger is broken or some of it was erased.
    """
    sequence = TokenSequence(plan, options)
    for context in plan.contexts:
        # Also where its answers are not trained: a summary's request holds them.
        for row in _context_rows(reader, plan, context, options, sequence):
            if plan.step_role in options.roles:
                yield row
        yield from make_summary_row(reader, plan, context, options, render_summary, sequence)


def make_summary_row(
    reader: Reader,
    plan: RolloutPlan,
    context: PlannedContext,
    options: RowOptions,
    render: Callable[[PlannedContext], Iterator[TokenRow]],
    sequence: TokenSequence | None = None,
) -> Iterator[TokenRow]:
    """The row of the summary that replaced `context`, where the model wrote it and it is wanted.

    render: makes it where it was sampled in other ids than the head's.
    sequence: the context as it stood then; without it the answers in the prompt are not marked.
    """
    if (summary := context.summary_to_train(options)) is None:
        return
    fork, seq = summary
    body = reader.run(_query_samples([seq])).get(seq)
    if body is None:
        raise _broken_error(seq)
    if has_foreign_ids(plan.head, body.tokenizer, body.new_prompt_ids):
        yield from render(context)
        return
    request = sequence.branch() if sequence else TokenSequence(plan, options)
    request.open(plan.summary_row_id(context.number + 1), context.number)
    _follow_prompt(reader, request, seq, body, None)
    answer = body.sampled(seq, fork.step, 1, "summary")
    weight = weigh_summary(body.answer(answer_soundness.reserved_of_head(plan.head)), options)
    request.add_answer(answer, weight)
    yield from request.rows("summary")


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
        answer = body.sampled(seq, step.number, step.row.attempt, plan.step_role)
        weight = compute_answer_weight(step, body.answer(reserved), options)
        raw = sequence.branch() if body.purified and step.others else None
        if raw is not None:
            reason = f"put together by purification; sampled in row {plan.raw_row_id(step.number)}"
            weight = AnswerWeight(0.0, reason, "")
        sequence.add_answer(answer, weight, own=not step.trained_in_rollout)
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
        role: SampleRole = plan.step_role if number == 1 else "lookahead"
        answer = body.sampled(seq, step.number, number, role)
        weight = compute_answer_weight(attempt, body.answer(reserved), options)
        sequence.add_answer(answer, weight, own=not step.trained_in_rollout)
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
        prompt = reader.run(step_context.read_prompt_ids(seq))
    except step_context.TokenIdsErased:
        raise _erased_error(seq) from None
    if prompt is None:
        raise _broken_error(seq)
    return prompt


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
    samples: dict[int, SampleFacts] = {}
    for seq, event in (yield from journal_events.events_by_seq(seqs)).items():
        raw = None if event.erased else (yield from journal_events.read_event_body(event))
        if raw is None:
            raise _erased_error(seq)
        try:
            samples[seq] = msgspec.msgpack.decode(raw, type=SampleFacts)
        except msgspec.MsgspecError:
            raise _broken_error(seq) from None
    return samples


def _erased_error(seq: int) -> HoustonError:
    return HoustonError(
        f"Token ids of event {seq} were erased from the journal.",
        NO_ROWS_MESSAGE,
        "Leave its rollout out.",
    )


def _broken_error(seq: int) -> HoustonError:
    return HoustonError(
        f"The ledger is broken at event {seq}: its prompt cannot be rebuilt.",
        NO_ROWS_MESSAGE,
        "houston verify",
    )
