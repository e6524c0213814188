"""Qwen3: Hermes tool calls, and reasoning that is switched in the opening of an answer.

With reasoning off the opening carries an empty think block, as the family's template writes it.
Reasoning of earlier steps stays in the context: it is append-only (strip thoughts to leave it out).
"""

from houston_daemon.dialects.hermes import Hermes


class Qwen3(Hermes):
    """Qwen3's ChatML."""

    name = "qwen3"
    stop_tokens: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")

    def __init__(self, reasoning: bool = False) -> None:
        if not reasoning:
            self.opening = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
