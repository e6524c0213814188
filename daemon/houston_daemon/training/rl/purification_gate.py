"""CLEANER's importance-ratio gate: which purified steps are trained as they stand, and which raw.

A correction was sampled in a context with the failure, but is trained in one without it. If the
policy is unlikely to write it there, its gradient is off-policy. The authors' "Plan B" computes the
geometric mean over its tokens of p(correction | purified) / p(correction | with the failure). From
a threshold (theirs: 0.5) on, the purified step is trained. Below it, the sampled answers are
trained in their own contexts. The denominator is from the engine; the numerator takes one more
forward pass of the trainer.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from houston_daemon.training.credit.credited_rows import NO_CREDIT, CreditedRow
from houston_daemon.training.credit.policy_gradient_rows import (
    PolicyGradientRow,
    policy_gradient_row,
)
from houston_daemon.training.rl.update_figures import GateFigures
from houston_daemon.training.rows.training_row import SampledSpan, TokenRow

KEPT_RAW_REASON = "kept raw: the policy would hardly say its correction in the purified context"
RowLogprobs = Callable[[Sequence[PolicyGradientRow]], Sequence[Sequence[float]]]
"""The policy's log-probability of every token of each row's completion, nats."""


def common_ending(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two answers end with alike: about those of the correction, where a ledger of
    earlier days does not say how many they are."""
    pairs = zip(reversed(first), reversed(second), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def geometric_mean_ratio(policy: Sequence[float], sampled: Sequence[float]) -> float:
    """exp(mean(policy - sampled)) of two lists of log-probabilities; 0.0 where they are empty."""
    gaps = [logprob - other for logprob, other in zip(policy, sampled, strict=True)]
    return math.exp(statistics.fmean(gaps)) if gaps else 0.0


class PurificationGate:
    """Decides the purified steps of one update, rollout by rollout, and counts them."""

    def __init__(self, min_ratio: float, logprobs: RowLogprobs) -> None:
        """min_ratio: the smallest ratio that is trained purified."""
        self._min_ratio = min_ratio
        self._logprobs = logprobs
        self._ratios: list[float] = []

    @property
    def figures(self) -> GateFigures:
        """Of every step that was decided."""
        return GateFigures(
            checked=len(self._ratios),
            kept_raw=sum(ratio < self._min_ratio for ratio in self._ratios),
            ratio=statistics.fmean(self._ratios) if self._ratios else 0.0,
        )

    def decide(self, purified: Sequence[TokenRow], raw: Sequence[TokenRow]) -> list[TokenRow]:
        """The rows of a rollout to train: the `purified` ones without steps that are too far
        off-policy, and for each such step its row from `raw` (`RowOptions.attempts`)."""
        corrections = {
            (span.step, span.attempt): (row, index)
            for row in raw
            for index, span in enumerate(row.spans)
            if span.role == "lookahead"
        }
        trained: list[TokenRow] = []
        for row in purified:
            ratios = self._ratios_of(row, corrections)
            self._ratios += ratios.values()
            off = {index for index, ratio in ratios.items() if ratio < self._min_ratio}
            spans = tuple(
                replace(span, weight=0.0, why=KEPT_RAW_REASON) if index in off else span
                for index, span in enumerate(row.spans)
            )
            trained.append(replace(row, spans=spans) if off else row)
            trained += [corrections[_source_of(row.spans[index])][0] for index in sorted(off)]
        return trained

    def _ratios_of(
        self, row: TokenRow, corrections: dict[tuple[int, int], tuple[TokenRow, int]]
    ) -> dict[int, float]:
        """The ratio of each purified step that a row trains, by index of its span."""
        span_corrections = {
            index: corrections[_source_of(span)]
            for index, span in enumerate(row.spans)
            if span.weight and _source_of(span) in corrections
        }
        credited = CreditedRow(row, (NO_CREDIT,) * len(row.spans))
        gradient_row = policy_gradient_row(credited) if span_corrections else None
        if gradient_row is None:
            return {}
        (policy,) = self._logprobs([gradient_row])
        start = len(gradient_row.prompt)
        ratios = {}
        for index, (other, at) in span_corrections.items():
            span, source = row.spans[index], other.spans[at]
            length = span.corrected or common_ending(
                row.token_ids[span.start : span.end], other.token_ids[source.start : source.end]
            )
            logps = other.logprobs.get(at, ())
            length = min(length, len(logps))  # nothing was said: nothing vouches for the step
            ratios[index] = geometric_mean_ratio(
                policy[span.end - start - length : span.end - start], logps[len(logps) - length :]
            )
        return ratios


def _source_of(span: SampledSpan) -> tuple[int, int]:
    """Step and attempt of the correction that a purified step took over: the one just before."""
    return span.step, span.attempt - 1
