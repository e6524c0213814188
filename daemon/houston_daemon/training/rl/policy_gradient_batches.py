"""Credited rows as the tensors of TRL's GRPO loss: minibatches of whole rollouts, packed into
passes of a bounded size.

What a rollout weighs does not depend on how many rows it was cut into. No model is needed here.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch

from houston_daemon.training.credit.policy_gradient_rows import PolicyGradientRow

LossNormalization = Literal["token", "rollout"]
"""`token`: each trained token weighs alike (DAPO, eq. 12). `rollout`: each rollout weighs alike,
whatever its length (GRPO)."""


def split_by_rollout(
    rows: Sequence[PolicyGradientRow], parts: int, seed: int
) -> list[list[PolicyGradientRow]]:
    """Minibatches of about as many rollouts each, in an order drawn by seed; rows of one rollout
    stay together. At most `parts`; none is empty."""
    rollouts = sorted({row.rollout for row in rows})
    random.Random(seed).shuffle(rollouts)
    count = min(parts, len(rollouts))
    part_of = {rollout: place * count // len(rollouts) for place, rollout in enumerate(rollouts)}
    minibatches: list[list[PolicyGradientRow]] = [[] for _ in range(count)]
    for row in rows:
        minibatches[part_of[row.rollout]].append(row)
    return minibatches


def rollout_weights(
    rows: Iterable[PolicyGradientRow], normalization: LossNormalization
) -> Mapping[str, float]:
    """What each trained token of a rollout weighs, for a loss that divides by all trained tokens.

    `token`: 1. `rollout`: T / (N n) for N rollouts with T trained tokens, n of them in this one, so
    that the loss is the mean over rollouts of their means over tokens.
    """
    tokens: Counter[str] = Counter()
    for row in rows:
        tokens[row.rollout] += row.trained
    if normalization == "token":
        return dict.fromkeys(tokens, 1.0)
    total = sum(tokens.values())
    return {rollout: total / (len(tokens) * own) for rollout, own in tokens.items()}


def pack_passes(
    rows: Sequence[PolicyGradientRow], max_tokens: int
) -> list[list[PolicyGradientRow]]:
    """Rows of like lengths together, at most `max_tokens` in a pass with its padding; a longer row
    has a pass of its own."""
    passes: list[list[PolicyGradientRow]] = []
    prompt = completion = 0  # the widest of the pass: each is padded by itself
    for row in sorted(rows, key=lambda row: (row.length, row.id), reverse=True):
        wider = max(prompt, len(row.prompt)), max(completion, len(row.completion))
        if passes and (len(passes[-1]) + 1) * sum(wider) <= max_tokens:
            passes[-1].append(row)
            prompt, completion = wider
        else:
            passes.append([row])
            prompt, completion = len(row.prompt), len(row.completion)
    return passes


def collate_pass(
    rows: Sequence[PolicyGradientRow], weights: Mapping[str, float], pad: int
) -> dict[str, torch.Tensor]:
    """The inputs of TRL's loss but for log-probabilities: (rows, tokens) each.

    Prompts are padded on the left, completions on the right, as TRL does. `tool_mask` carries each
    token's weight: TRL multiplies the loss of a token by it, and nothing else.
    """
    prompt = max(len(row.prompt) for row in rows)
    completion = max(len(row.completion) for row in rows)

    def left(values: Sequence[int], fill: int) -> list[int]:
        return [fill] * (prompt - len(values)) + list(values)

    def right(values: Sequence[float], fill: float) -> list[float]:
        return list(values) + [fill] * (completion - len(values))

    return {
        "prompt_ids": torch.tensor([left(row.prompt, pad) for row in rows]),
        "prompt_mask": torch.tensor([left([1] * len(row.prompt), 0) for row in rows]),
        "completion_ids": torch.tensor([right(row.completion, pad) for row in rows]).long(),
        "completion_mask": torch.tensor(
            [right([1] * len(row.completion), 0) for row in rows]
        ).long(),
        "tool_mask": torch.tensor(
            [right([weights[row.rollout] * value for value in row.mask], 0.0) for row in rows]
        ),
        "advantages": torch.tensor([right(row.advantages, 0.0) for row in rows]),
        "sampling_per_token_logps": torch.tensor(
            [right(row.sampled_logprobs, math.nan) for row in rows]
        ),
    }
