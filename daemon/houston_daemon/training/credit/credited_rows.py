"""Rows with credit: a reward, a return and an advantage beside each sampled token.

A row's weight stays its mask, so that an advantage may be negative. Today a rollout's outcome is
every step's return; a reward for each step sets `SpanCredit` of each answer otherwise.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from houston_daemon.training.rows.training_row import BrokenRow, TokenRow


@dataclass(frozen=True, slots=True)
class SpanCredit:
    """What one sampled answer is given."""

    reward: float
    """Earned by this answer itself; the outcome stands at the last one."""
    returned: float
    """Reward from here to the end of the rollout."""
    advantage: float
    """How much better than its group this answer is taken to be; below 0: it is made rarer."""


@dataclass(frozen=True, slots=True)
class RolloutCredit:
    """What one rollout of a finished group is given."""

    rollout: str
    reward: float
    """What it earned, with its penalty for length."""
    advantage: float
    """How much better than its group it did."""
    truncated: bool
    """Whether a limit broke something of it off."""
    masked: str
    """Why none of it is trained although its group counts it; empty where it is."""
    update: int
    """Update of the run, from 0."""
    group: str
    """Its group's name in the run."""


@dataclass(frozen=True, slots=True)
class CreditedRow:
    """A row, and the credit of each of its spans."""

    row: TokenRow
    credits: tuple[SpanCredit, ...]
    """One for each of the row's spans, in their order."""

    def __post_init__(self) -> None:
        if len(self.credits) != len(self.row.spans):
            raise BrokenRow(f"row {self.row.id} has another number of credits than of spans")

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


def credit_outcome(
    rows: Iterable[TokenRow], reward: float, advantage: float, masked: str = ""
) -> Iterator[CreditedRow]:
    """All rows of one rollout, each answer with the rollout's outcome and its advantage.

    masked: why the rollout is not trained although its group counts it (overlong filtering: DAPO,
    section 3.4), so that its answers lose their weight; empty where it is.
    """
    made = [_without_weight(row, masked) if masked else row for row in rows]
    last = max((span.step for row in made for span in row.spans), default=0)
    for row in made:
        spans = (
            SpanCredit(reward if span.step == last else 0.0, reward, advantage)
            for span in row.spans
        )
        yield CreditedRow(row, tuple(spans))


def _without_weight(row: TokenRow, why: str) -> TokenRow:
    """The row with nothing of it trained."""
    spans = (replace(each, weight=0.0, why=why) if each.weight else each for each in row.spans)
    return replace(row, spans=tuple(spans))
