"""Qwen3: Hermes tool calls, and reasoning that is switched in the opening of an answer.

With reasoning off the opening carries an empty think block, as the family's template writes it.
Reasoning of earlier steps stays in the context: it is append-only (strip thoughts to leave it out).
"""

from collections.abc import Sequence

from houston_daemon.dialects.chatml_json import content, template
from houston_daemon.dialects.hermes import Hermes
from houston_daemon.dialects.protocol import Piece
from houston_shared.records import Call


class Qwen3(Hermes):
    """Qwen3's ChatML."""

    name = "qwen3"
    stop_tokens: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")

    def __init__(self, reasoning: bool = False) -> None:
        self._reasoning = reasoning
        if not reasoning:
            self.opening = "<|im_start|>assistant\n<think>\n\n</think>\n\n"

    def assistant(self, thought: str, calls: Sequence[Call]) -> list[Piece]:
        """See `Dialect.assistant`; with reasoning on an action's thought stands in its block."""
        if not (self._reasoning and thought and calls):
            return super().assistant(thought, calls)
        block = [template("<think>\n"), content(thought), template("\n</think>\n\n")]
        return [*block, *super().assistant("", calls)]
