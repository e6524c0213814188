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
    """Special tokens that end an assistant turn."""

    def head(self, system: str, tools: Sequence[ToolSpec], task: str) -> list[Piece]:
        """System prompt, tools and task, up to and including the opening of the first answer."""
        ...

    def observation(self, results: Sequence[ToolText], tail: str) -> list[Piece]:
        """Everything between a sampled stop token and the next answer's opening.

        tail: clock, budgets and the rendered guidance; comes last within the newest message.
        """
        ...

    def summary_request(self, text: str) -> list[Piece]:
        """A user message that asks for a summary, instead of an observation's tail."""
        ...

    def assistant(self, thought: str, calls: Sequence[Call]) -> list[Piece]:
        """An answer rendered (after a fork, for steps whose ids were not kept; for exports)."""
        ...

    def parse(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> Action:
        """The action in a sampled text; every call's arguments are checked against its tool."""
        ...

    def grammar(self, tools: Sequence[ToolSpec]) -> Mapping[str, Any] | None:
        """JSON schema of a whole answer with bounded strings and integers; None: unguided only."""
        ...
