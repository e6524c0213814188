"""What a simulator said, and how it reads."""

from typing import Any, ClassVar

from houston_daemon.environments.observation import Observation, Text, render


class Seen(Observation, frozen=True, kw_only=True):
    """The answer of the simulator to one action."""

    kind: ClassVar[str] = "http"
    bulk: ClassVar[tuple[str, ...]] = ("text",)
    text: str
    finished: bool
    """Whether the episode is over."""
    more: dict[str, Any] = {}
    """What the simulator says for rules and exports."""


class Scored(Observation, frozen=True, kw_only=True):
    """The simulator's score; the fields of an evaluation."""

    kind: ClassVar[str] = "eval"
    overall_score: float
    state: str = "scored"
    counted: bool = True


class Finish(Observation, frozen=True, kw_only=True):
    """The agent ends the episode."""

    kind: ClassVar[str] = "finish"
    finished: bool


@render.register
def _(one: Seen) -> Text:
    over = "[the episode is over]" if one.finished else ""
    return Text(over, one.text or "(The simulator said nothing.)")


@render.register
def _(one: Scored) -> Text:
    return Text(f"overall_score: {one.overall_score:g} of 100")


@render.register
def _(one: Finish) -> Text:
    return Text("Finished." if one.finished else f"Error: {one.error}")
