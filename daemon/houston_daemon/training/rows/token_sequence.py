"""A context's token ids as they grow, with the answers that stand in them: what recorded rows are
cut from.

The one place that moves marks when a prompt does not continue where the last one ended. It reads
nothing and decides no weight.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from houston_daemon.prompts.context_ledger import common_prefix_length
from houston_daemon.training.rows.row_weights import AnswerWeight, RolloutPlan, weight_of_copy
from houston_daemon.training.rows.training_row import (
    IdsSource,
    RowKind,
    RowOptions,
    SampledSpan,
    TokenRow,
)
from houston_shared.records import LogprobKind, SampleRole

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
        self._first = True
        self._wanted = False

    def open(self, row: str, context: int, part: int = 0) -> None:
        """What is sampled from now on belongs to the row with this id, the n-th of its context."""
        self._row, self._context, self._first, self._wanted = row, context, part == 0, False

    def branch(self) -> "TokenSequence":
        """A sequence of its own that begins with what stands here: for a summary's request."""
        copied = copy(self)
        copied.ids, copied._marks, copied._entries = self.ids[:], [*self._marks], [*self._entries]
        return copied

    @property
    def has_grown(self) -> bool:
        """Whether an answer of the open row stands in it."""
        return any(mark.row == self._row for mark in self._marks)

    def continues(self, parent: int | None, kept: int) -> bool:
        """Whether a prompt of which this is told begins with all that stands here."""
        return parent == self.seq and kept == len(self.ids)

    def continue_prompt(self, kept: int, new: Sequence[int]) -> None:
        """The next prompt: the first `kept` ids, then `new` ones."""
        self._cut(kept)
        self.ids.extend(new)

    def begin_prompt(self, prompt: Sequence[int], kept_from: int | None) -> None:
        """The first prompt of a context. kept_from: the first step that it keeps as it is."""
        ids = array("i", prompt)
        start = next((at for step, at in self._entries if step == kept_from), None)
        first = common_prefix_length(self.ids, ids)
        marks = [mark for mark in self._marks if mark.end <= first]
        entries = [one for one in self._entries if one[1] <= first]
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
        self._wanted = self._wanted or own
        if answer.ids:
            end = len(self.ids)
            self._marks.append(_AnswerMark(start, end, answer, weight, self._row, self._context))

    def rows(self, kind: RowKind, source: IdsSource = "ledger") -> Iterator[TokenRow]:
        """The open row, unless nothing of it is this rollout's to train."""
        if not (self._wanted and self.has_grown):
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
            source=source,
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
        if mark.row != self._row and not (over_a_fork and self._first):
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
        )

    def _cut(self, kept: int) -> None:
        if kept >= len(self.ids):
            return
        del self.ids[kept:]
        self._entries = [one for one in self._entries if one[1] <= kept]
        self._marks = [
            replace(mark, end=min(mark.end, kept)) for mark in self._marks if mark.start < kept
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
