"""How many tokens the parts of a rollout may take, and how a text that is too long is cut.

Computes the limits of context, answer, observation and summary once from the task's budget and the
engine's window (docs/design.md#the-agent-loop), checks that the head leaves enough room, and cuts
the middle out of a long observation with a note that says so. Tokens are counted in
`prompt_tokenizer`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from houston_shared.errors import HoustonError
from houston_shared.task import BudgetSettings

CUT_NOTE_TOKENS = 24
"""What the note about the cut takes."""


OBSERVATION_LABEL = "the observation"


def cut_middle(
    text: str, limit: int, offsets: Sequence[tuple[int, int]], label: str = OBSERVATION_LABEL
) -> str:
    """The first two thirds and the last third of `limit` tokens, with a note between.

    offsets: start and end of each token in `text`, in characters. label: what was too long, for the
    note. A text that fits comes back as it is.
    """
    if len(offsets) <= limit:
        return text
    room = max(2, limit - CUT_NOTE_TOKENS)
    first = offsets[room - room // 3][0]
    last = offsets[len(offsets) - room // 3][0] if room // 3 else len(text)
    note = f"\n[… {last - first} characters cut: {label} was too long …]\n"
    return text[:first] + note + text[last:]


DEFAULT_ANSWER_TOKENS = 1_024
"""Of one sample, where the task file does not say."""
MIN_ANSWER_TOKENS = 48
"""A sample with less room than this would only be cut."""
RESERVED_TAIL_TOKENS = 112
"""Kept free in an observation for clock, budgets and notes of the loop."""
MAX_SUMMARY_TOKENS = 4_096
BYTES_PER_TOKEN = 3
"""Of what people write. A text of shorter tokens is cut again where it does not fit."""


@dataclass(frozen=True, slots=True)
class TokenLimits:
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

    def answer_room(self, prompt: int, wanted_tokens: int) -> int:
        """Most tokens that may be sampled after `prompt` tokens; not positive when none fit."""
        return wanted_tokens if self.window is None else min(wanted_tokens, self.window - prompt)

    def fork_threshold(self, head: int) -> int:
        """The context limit, but large enough that not every step forks again.

        head: tokens of system prompt, tools and task. A summary and one step must fit next to it.
        """
        return max(self.context, head + self.summary + self.answer + self.observation)


def compute_token_limits(budget: BudgetSettings, window: int | None) -> TokenLimits:
    """What fits: min(context budget, window − answer − one observation)."""
    observation = min(budget.observation_tokens, max(256, budget.context_tokens // 4))
    answer = budget.answer_tokens or DEFAULT_ANSWER_TOKENS
    context = budget.context_tokens
    if window is not None:
        answer = min(answer, window // 4)
        observation = min(observation, window // 4)
        context = min(context, window - answer - observation)
    summary = min(MAX_SUMMARY_TOKENS, max(160, context // 8))
    most = budget.context_tokens if window is None else min(budget.context_tokens, window)
    guidance = max(256, most // 4)
    return TokenLimits(window, context, answer, observation, summary, guidance)


def check_head_fits(head: int, fitting: TokenLimits) -> None:
    """Raise HoustonError when the head leaves no room for a first answer and its observation, or
    when the room for an answer is too small in itself."""
    if fitting.answer < MIN_ANSWER_TOKENS:
        raise HoustonError(
            f"An answer may have {fitting.answer} tokens here, and one of fewer than"
            f" {MIN_ANSWER_TOKENS}"
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
