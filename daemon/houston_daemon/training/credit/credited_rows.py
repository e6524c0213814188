"""Rows with credit: each sampled token has a reward, a return and an advantage.

A row's weight stays its mask, because an advantage may be negative. The outcome of a rollout is
credited to all its answers alike. Process rewards, where a run has them, are credited to the
decisions that earned them.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from houston_daemon.training.rows.training_row import BrokenRow, SampledSpan, TokenRow
from houston_shared.sample_roles import SAMPLE_ROLES


@dataclass(frozen=True, slots=True)
class SpanCredit:
    """What one sampled answer is given."""

    reward: float
    """Earned by this answer itself; the outcome stands at the last decision."""
    returned: float
    """Reward from here to the end of the rollout."""
    advantage: float
    """How much better than its group this answer is taken to be; below 0: it is made rarer."""


NO_CREDIT = SpanCredit(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ProcessCredit:
    """What the decisions of one rollout are given by themselves."""

    weight: float
    """Share of it in an answer's credit, 0 to 1; the outcome has the rest."""
    rewards: Mapping[int, float] = field(default_factory=dict)
    """By step, what a process reward model says of its decision, 0 to 1."""
    advantages: Mapping[int, float] = field(default_factory=dict)
    """By step, how much better that is than the decisions of its group."""


OUTCOME_ONLY = ProcessCredit(0.0)


@dataclass(frozen=True, slots=True)
class RolloutCredit:
    """What one rollout of a finished group is given."""

    rollout: str
    reward: float
    """What it earned, with its penalty for length."""
    advantage: float
    """How much better than its group it did."""
    masked: str
    """Why none of it is trained although its group counts it; empty where it is."""
    update: int
    """Update of the run, from 0."""
    group: str
    """Its group's name in the run."""
    process: ProcessCredit = OUTCOME_ONLY
    """What each of its decisions is given besides."""


@dataclass(frozen=True, slots=True)
class CreditedRow:
    """A row, and the credit of each of its spans."""

    row: TokenRow
    credits: tuple[SpanCredit, ...]
    """One for each of the row's spans, in their order."""

    def __post_init__(self) -> None:
        if len(self.credits) != len(self.row.spans):
            raise BrokenRow(f"row {self.row.id} has a different number of credits than spans")

    def advantages(self) -> "array[float]":
        """One advantage per token; 0.0 outside every span (`array('f')`)."""
        return self._by_token([credit.advantage for credit in self.credits])

    def returns(self) -> "array[float]":
        """Reward from each sampled token to the end of the rollout; 0.0 outside every span."""
        return self._by_token([credit.returned for credit in self.credits])

    def _by_token(self, by_span: list[float]) -> "array[float]":
        values = array("f", bytes(4 * len(self.row.token_ids)))
        for span, value in zip(self.row.spans, by_span, strict=True):
            values[span.start : span.end] = array("f", [value]) * (span.end - span.start)
        return values

    def mask(self) -> "array[int]":
        """1 where a token is trained, else 0 (`array('b')`)."""
        values = array("b", bytes(len(self.row.token_ids)))
        for span in self.row.spans:
            if span.weight:
                values[span.start : span.end] = array("b", [1]) * (span.end - span.start)
        return values

    @property
    def trained(self) -> int:
        """Tokens that are trained."""
        return self.row.trained


def credit_rollout(rows: Iterable[TokenRow], credit: RolloutCredit) -> Iterator[CreditedRow]:
    """All rows of one rollout, each answer with its part of the rollout's credit.

    Every answer gets the advantage of the outcome. A decision's own advantage is added, weighted by
    the share of process rewards. An answer that decides no step (a summary) has no advantage of its
    own; its step is the next one. Where the rollout is masked (overlong filtering: DAPO, section
    3.4), its answers lose their weight.
    """
    weighted_rows = [_without_weight(row, credit.masked) if credit.masked else row for row in rows]
    spans = [span for row in weighted_rows for span in row.spans]
    last = max((span.step for span in spans if _decides(span)), default=0)
    only = max((span.step for span in spans), default=0) if not last else 0
    for row in weighted_rows:
        credits = [
            _span_credit(span, credit, span.step == (last if _decides(span) else only))
            for span in row.spans
        ]
        yield CreditedRow(row, tuple(credits))


def _decides(span: SampledSpan) -> bool:
    return SAMPLE_ROLES[span.role].acts


def _span_credit(span: SampledSpan, credit: RolloutCredit, last: bool) -> SpanCredit:
    """The credit of one answer. last: whether it earned the outcome."""
    process, outcome = credit.process, 1 - credit.process.weight
    decides = _decides(span)
    earned = process.weight * process.rewards.get(span.step, 0.0) if decides else 0.0
    own = process.weight * process.advantages.get(span.step, 0.0) if decides else 0.0
    next_step = span.step + 1 if decides else span.step
    follows = sum(reward for step, reward in process.rewards.items() if step >= next_step)
    ends = outcome * credit.reward
    return SpanCredit(
        reward=earned + (ends if last else 0.0),
        returned=earned + process.weight * follows + ends,
        advantage=outcome * credit.advantage + own,
    )


def _without_weight(row: TokenRow, why: str) -> TokenRow:
    """The row with nothing of it trained."""
    spans = (replace(each, weight=0.0, why=why) if each.weight else each for each in row.spans)
    return replace(row, spans=tuple(spans))
