"""A typed observation, what all kinds have in common, and how it becomes text.

Rules and exports read the fields, never prose. `bulk` names the fields whose content the text
already holds, so that a stored result keeps every byte once. Each environment defines its own kinds
and their text next to each other.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, ClassVar

import msgspec


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every observation."""

    kind: ClassVar[str]
    bulk: ClassVar[tuple[str, ...]] = ()
    success: bool = True
    error: str = ""
    """What went wrong, one sentence; empty when nothing did."""

    def fields(self) -> dict[str, Any]:
        """The typed fields of its kind, without success, bulk, and an empty error."""
        left_out = {"success", *self.bulk, *(() if self.error else ("error",))}
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: _text(value) for name, value in fields.items() if name not in left_out}


def _text(value: Any) -> Any:
    """`value` with U+FFFD for lone surrogates (file names that are no UTF-8 have them)."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return [_text(item) for item in value] if isinstance(value, list | tuple) else value


class Failed(Observation, frozen=True, kw_only=True):
    """An action that could not be done; `error` says why and what to do instead."""

    kind: ClassVar[str] = "error"
    success: bool = False


class Interrupted(Observation, frozen=True, kw_only=True):
    """A call whose worker ended while it ran: its outcome is unknown."""

    kind: ClassVar[str] = "interrupted"
    bulk: ClassVar[tuple[str, ...]] = ("now",)
    success: bool = False
    now: str
    """What the terminal or the file shows now."""


class Finished(Observation, frozen=True, kw_only=True):
    """The agent says that it is done; `error` says why that is refused."""

    kind: ClassVar[str] = "finish"
    finished: bool


@dataclass(frozen=True, slots=True)
class Text:
    """An observation in words, not yet through the door."""

    head: str
    """One or a few lines that are never cut."""
    body: str = ""
    """What may be cut."""
    how: str = ""
    """How to see what a cut left out."""


@singledispatch
def render(observation: Observation) -> Text:
    """The observation in words. Every type has its own form below."""
    raise TypeError(f"no text for {type(observation).__name__}")


@render.register
def _(result: Failed) -> Text:
    return Text(f"Error: {result.error}")


@render.register
def _(result: Finished) -> Text:
    return Text("Finished." if result.finished else f"Error: {result.error}")


@render.register
def _(result: Interrupted) -> Text:
    head = (
        f"Interrupted: {result.error} It was not run again. Whether it had its effect is unknown; "
        "look before you repeat it."
    )
    return Text(head, result.now, "get_session_output or open_file shows more")
