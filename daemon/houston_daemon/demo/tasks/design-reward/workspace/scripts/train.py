"""The reinforcement learning that your reward is used in; it is fixed, only the reward is yours.

A small stand-in for a reasoning model: for each kind of problem the policy chooses how long it
reasons (1 to 10), by a softmax of its own. Longer traces are right more often, up to a point. It is
trained by policy gradient on groups of traces, with the mean reward of a group as baseline (as in
GRPO, without dividing by the deviation), and starts out reasoning long.
"""

import json
import math
import random
from pathlib import Path

from expression import Formula, formula

NAMES = ("correct", "length", "longest", "mean_length", "share", "t")
"""Of a trace: 1 if it is right, its length; then 10, mean length and share of right ones of its
group, and progress 0 to 1."""
LONGEST = 10
GROUP = 8
ROUNDS = 250
RATE = 0.25
SEEDS = (1, 2, 3)
PER_UNIT = 3.0
"""Points of accuracy that a unit of length costs in the measure."""
Policy = list[list[float]]


def reward(file: Path) -> Formula:
    """The submitted reward, tried at the edges. Raises ValueError with a sentence."""
    found = formula(file.read_text(encoding="utf-8"), NAMES)
    for correct in (0, 1):
        for length in (1, LONGEST):
            for share in (0.0, correct / GROUP, 1.0):
                known = {"share": share, "mean_length": float(length), "t": 0.0}
                found(correct=correct, length=length, longest=LONGEST, **known)
    return found


def chance(need: float, length: int) -> float:
    """How likely a trace of a length is right."""
    lost = 0.01 * max(0.0, length - 4 * need)  # it thinks its answer away again
    return 1 - math.exp(-((length / need) ** 1.5)) - lost


def softmax(logits: list[float]) -> list[float]:
    """Probabilities of lengths 1 to LONGEST."""
    top = max(logits)
    parts = [math.exp(one - top) for one in logits]
    return [one / sum(parts) for one in parts]


def train(problems: dict[str, list[float]], value: Formula, seed: int) -> Policy:
    """The policy after all rounds: logits by kind of problem."""
    dice = random.Random(seed)
    policy = [[0.25 * length for length in range(1, LONGEST + 1)] for _ in problems["needs"]]
    for number in range(ROUNDS):
        for kind, need in enumerate(problems["needs"]):
            chances = softmax(policy[kind])
            lengths = dice.choices(range(1, LONGEST + 1), chances, k=GROUP)
            right = [int(dice.random() < chance(need, length)) for length in lengths]
            known = {
                "longest": LONGEST,
                "mean_length": sum(lengths) / GROUP,
                "share": sum(right) / GROUP,
                "t": number / (ROUNDS - 1),
            }
            rewards = [
                value(correct=ok, length=length, **known)
                for ok, length in zip(right, lengths, strict=True)
            ]
            mean = sum(rewards) / GROUP
            for length, got in zip(lengths, rewards, strict=True):
                advantage = max(-2.0, min(2.0, got - mean))
                for index, share in enumerate(chances):
                    policy[kind][index] += RATE * advantage * ((index + 1 == length) - share)
    return policy


def measure(policy: Policy, problems: dict[str, list[float]]) -> tuple[float, float]:
    """Accuracy, 0 to 100, and mean length, both exactly."""
    accuracy = mean = 0.0
    for logits, need, share in zip(policy, problems["needs"], problems["shares"], strict=True):
        for length, weight in enumerate(softmax(logits), 1):
            accuracy += 100 * share * weight * chance(need, length)
            mean += share * weight * length
    return accuracy, mean


def outcome(
    value: Formula, problems: dict[str, list[float]], test: dict[str, list[float]]
) -> tuple[float, float]:
    """Accuracy and mean length on `test`, the mean over the seeds."""
    found = [measure(train(problems, value, seed), test) for seed in SEEDS]
    return sum(a for a, _ in found) / len(SEEDS), sum(m for _, m in found) / len(SEEDS)


def read(file: Path) -> dict[str, list[float]]:
    """Kinds of problems and their shares."""
    found: dict[str, list[float]] = json.loads(file.read_text(encoding="utf-8"))
    return found
