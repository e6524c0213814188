"""A credited row cut to what a policy gradient needs: a prompt, and what was sampled after it.

Houston's own trainer and the exports for other trainers take the same rows, so that both learn the
same tokens with the same advantages. No torch here.
"""

import math
from dataclasses import dataclass

from houston_daemon.training.credit.credited_rows import CreditedRow

RATIO_LOGPROB_KIND = "policy"
"""The only kind of log-probability that says how likely a token was as it was drawn."""


@dataclass(frozen=True, slots=True)
class PolicyGradientRow:
    """A row that is trained, cut to what the loss needs; all lists but `prompt` have one length."""

    id: str
    rollout: str
    prompt: list[int]
    """Ids before the first trained token."""
    completion: list[int]
    """Ids from the first trained token to the last one, with what the environment said between."""
    mask: list[int]
    """1 where a token is trained."""
    advantages: list[float]
    sampled_logprobs: list[float]
    """What the engine said as it drew them; NaN where it did not say, or said something else."""

    @property
    def trained(self) -> int:
        """Tokens that are trained."""
        return sum(self.mask)

    @property
    def length(self) -> int:
        """All of its tokens."""
        return len(self.prompt) + len(self.completion)


def sampled_answer_row(
    name: str,
    prompt: list[int],
    answer: list[int],
    logprobs: list[float] | None,
    advantage: float,
) -> PolicyGradientRow:
    """A row of one answer that was sampled outside of a rollout. All of it is trained, with the
    weight of a rollout. logprobs: None where the engine gave another kind of them."""
    count = len(answer)
    return PolicyGradientRow(
        id=name,
        rollout=name,
        prompt=prompt,
        completion=answer,
        mask=[1] * count,
        advantages=[advantage] * count,
        sampled_logprobs=logprobs or [math.nan] * count,
    )


def policy_gradient_row(credited: CreditedRow) -> PolicyGradientRow | None:
    """A credited row for the loss; None where nothing of it is trained."""
    mask = credited.mask()
    trained = [at for at, value in enumerate(mask) if value]
    if not trained:
        return None
    start, end = max(1, trained[0]), trained[-1] + 1
    row = credited.row
    logprobs = [math.nan] * len(row.token_ids)
    for index, values in row.logprobs.items():
        span = row.spans[index]
        if span.logprob_kind == RATIO_LOGPROB_KIND and not span.guided:
            logprobs[span.start : span.end] = values
    return PolicyGradientRow(
        id=row.id,
        rollout=row.rollout,
        prompt=row.token_ids[:start].tolist(),
        completion=row.token_ids[start:end].tolist(),
        mask=mask[start:end].tolist(),
        advantages=credited.advantages()[start:end].tolist(),
        sampled_logprobs=logprobs[start:end],
    )
