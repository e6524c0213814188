"""Token limits of one rollout, from the task's budget and the engine's window (DESIGN §5).

Everything that must fit together is reckoned here once: context, answer, observation, summary.
"""

from dataclasses import dataclass

from houston_shared.errors import HoustonError
from houston_shared.task import Budget

ANSWER_TOKENS = 1_024
"""Of one sample, where the task file does not say."""
LEAST_ANSWER = 48
"""A sample with less room than this would only be cut."""
TAIL_TOKENS = 112
"""Kept free in an observation for clock, budgets and notes of the loop."""
LARGEST_SUMMARY = 4_096
BYTES_PER_TOKEN = 3
"""Of what people write. A text of shorter tokens is cut again where it does not fit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All in tokens."""

    window: int | None
    """Largest prompt + answer; None when the engine has none (script)."""
    context: int
    """A longer context is forked before the next sample."""
    answer: int
    observation: int
    summary: int
    guidance: int
    """What people said takes at most this in one observation, and beside a summary."""

    def room(self, prompt: int, wanted: int) -> int:
        """Most tokens that may be sampled after `prompt` tokens; not positive when none fit."""
        return wanted if self.window is None else min(wanted, self.window - prompt)

    def useful(self, head: int) -> int:
        """The context limit, but never so small that each step would fork again.

        head: tokens of system prompt, tools and task. A summary and one step must fit beside it.
        """
        return max(self.context, head + self.summary + self.answer + self.observation)


def limits(budget: Budget, window: int | None) -> Limits:
    """What fits: min(context budget, window − answer − one observation)."""
    observation = min(budget.observation_tokens, max(256, budget.context_tokens // 4))
    answer = budget.answer_tokens or ANSWER_TOKENS
    context = budget.context_tokens
    if window is not None:
        answer = min(answer, window // 4)
        observation = min(observation, window // 4)
        context = min(context, window - answer - observation)
    summary = min(LARGEST_SUMMARY, max(160, context // 8))
    whole = budget.context_tokens if window is None else min(budget.context_tokens, window)
    guidance = max(256, whole // 4)
    return Limits(window, context, answer, observation, summary, guidance)


def check_head(head: int, fitting: Limits) -> None:
    """Raise HoustonError when the head leaves no room for a first answer and its observation, or
    an answer has too little room by itself."""
    if fitting.answer < LEAST_ANSWER:
        raise HoustonError(
            f"An answer may have {fitting.answer} tokens here, and one of fewer than {LEAST_ANSWER}"
            " would only be cut.",
            "The rollout cannot start.",
            "Raise `budget.answer_tokens` in the task file; a quarter of the engine's window is the"
            " most that counts.",
        )
    if fitting.window is None:
        return
    least = head + fitting.answer + fitting.observation
    if least > fitting.window:
        raise HoustonError(
            f"System prompt, tools and task take {head} tokens; with an answer and an observation "
            f"that is {least}, and the engine's window has {fitting.window}.",
            "The rollout cannot start.",
            "Name fewer `tools` in the task file, shorten the instructions, or use another engine.",
        )
