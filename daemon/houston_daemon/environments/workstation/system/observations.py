"""What the system actions found, and how it reads."""

from typing import ClassVar

from houston_daemon.environments.observation import Observation, Text, render


class Thought(Observation, frozen=True, kw_only=True):
    """A thought was written down."""

    kind: ClassVar[str] = "think"


class Slept(Observation, frozen=True, kw_only=True):
    """A sleep has ended."""

    kind: ClassVar[str] = "sleep"
    asked: float
    slept: float
    ended_by: str
    """`time`, `wake`, `interrupt`."""
    away: bool = False
    """Whether the daemon was away during the sleep."""
    running: tuple[str, ...] | None = None
    """Sessions in which a command ran as it began; None where that is not known."""


class Finish(Observation, frozen=True, kw_only=True):
    """The agent says that it is done."""

    kind: ClassVar[str] = "finish"
    finished: bool


@render.register
def _(one: Thought) -> Text:
    return Text("Noted.")


@render.register
def _(one: Slept) -> Text:
    why = {
        "time": "",
        "wake": "; it ended because a person spoke",
        "interrupt": "; it was interrupted by a person",
        "budget": "; it ended because the time budget is spent",
    }[one.ended_by]
    away = " The daemon was away for part of it." if one.away else ""
    return Text(f"Slept {one.slept:.1f} of {one.asked:.0f} s{why}.{away}")


@render.register
def _(one: Finish) -> Text:
    return Text("Finished." if one.finished else f"Error: {one.error}")
