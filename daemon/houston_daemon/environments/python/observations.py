"""What code did, and how it reads: what it printed, then its traceback."""

from typing import ClassVar

from houston_daemon.environments.observation import Observation, Text, render


class Executed(Observation, frozen=True, kw_only=True):
    """Code that was run; `success` is false when an exception, or a limit, ended it."""

    kind: ClassVar[str] = "python"
    bulk: ClassVar[tuple[str, ...]] = ("output",)
    error_type: str = ""
    """Name of the exception's class; `TimeoutError` beyond the time limit, `Killed` where something
    else ended the process. Empty when the code ran to its end."""
    traceback_lines: tuple[str, ...] = ()
    """The traceback, of a long one its ends."""
    seconds: float
    output: str
    dropped: bool = False
    """Whether output beyond the limit was not kept."""


class Finish(Observation, frozen=True, kw_only=True):
    """The end of a task that asks no question of a set."""

    kind: ClassVar[str] = "finish"
    answer: str
    finished: bool


@render.register
def _(one: Executed) -> Text:
    dropped = "[output beyond this was not kept]" if one.dropped else ""
    trace = one.traceback_lines or ((f"{one.error_type}: {one.error}",) if one.error_type else ())
    parts = [one.output.rstrip("\n"), dropped, *trace]
    body = "\n".join(part for part in parts if part)
    return Text("", body or "(The code ran and printed nothing.)", "print less")


@render.register
def _(one: Finish) -> Text:
    return Text("Finished." if one.finished else f"Error: {one.error}")
