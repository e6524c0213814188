"""How one model family writes: what the loop asks of a dialect.

A dialect renders the head and each delta as pieces, parses sampled text into an action and names
the ids that end a turn. It keeps no state and never re-tokenises what was sampled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from houston_daemon.environments.protocol import ToolSpec
from houston_shared.records import Call


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of prompt text."""

    text: str
    template: bool
    """Whether special tokens in `text` are meant (the dialect's own markup). In content they are
    ordinary letters, so that a file holding `<|im_end|>` cannot end a turn."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a model decided: the parsed form of one policy sample."""

    thought: str
    calls: tuple[Call, ...]
    malformed: str = ""
    """Why the text is no action; empty when it is one. `thought` then holds the whole text."""


@dataclass(frozen=True, slots=True)
class ToolText:
    """One result as it goes into the prompt."""

    call_id: str
    name: str
    text: str


class Dialect(Protocol):
    """One model family's way of writing."""

    name: str
    stop_tokens: tuple[str, ...]
    """Special tokens that end an assistant turn; the first one closes a turn that has none."""
    answer_tokens: tuple[str, ...]
    """Tokens of the family's own that an answer may hold before its stop token. Any other special
    token in an answer, or one of a tool's result, is a turn that the model forged."""
    form: str
    """One line that shows a model the form of an answer, for an answer that could not be read."""

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[Piece]:
        """System prompt, tools and task, up to and including the opening of the first answer.

        short: tools as one line each instead of their JSON schemas.
        """
        ...

    def question(self, system: str, text: str) -> list[Piece]:
        """A system prompt and one message without tools, up to the opening of the answer: for
        samples that are no action (the judge's)."""
        ...

    def observation(
        self, results: Sequence[ToolText], tail: str, stop: str | None = None
    ) -> list[Piece]:
        """Everything between what was sampled and the content of the next answer.

        tail: clock, budgets and the rendered guidance; comes last within the newest message.
        stop: the stop token that was sampled; empty when the answer was cut and its turn is still
        open; None when the answer ended as the family's template ends it.
        """
        ...

    def assistant(self, thought: str, calls: Sequence[Call]) -> list[Piece]:
        """An answer rendered with its closing token, where the sampled ids are not used: a
        stripped thought, a summary, an export. Follows an opening, precedes `observation`."""
        ...

    def parse(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> Action:
        """The action in a sampled text (without its stop token).

        Call ids are `<step>.<index>`. An unknown tool or wrong argument names set the call's
        `error`; a text without a readable call is `malformed`. Never raises.
        """
        ...

    def grammar(
        self, tools: Sequence[ToolSpec], answer_tokens: int = 1024
    ) -> Mapping[str, Any] | None:
        """JSON schema of a whole answer, with strings, integers and the number of calls bounded
        so that a usual answer fits into `answer_tokens`; None: unguided only."""
        ...
