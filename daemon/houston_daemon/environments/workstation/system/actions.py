"""The four system actions: their arguments, bounds and one-line descriptions."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments


class SystemAction(Arguments, frozen=True, kw_only=True):
    """Base of the system actions."""

    family: ClassVar[str] = "system"


class Think(SystemAction, frozen=True, kw_only=True):
    """Write a thought down; never twice in a row."""

    name: ClassVar[str] = "think"
    thought: Annotated[str, Meta(min_length=1, max_length=4_000, description="The thought.")]


class Sleep(SystemAction, frozen=True, kw_only=True):
    """Wait while something runs."""

    name: ClassVar[str] = "sleep"
    sleep_time: Annotated[int, Meta(ge=1, le=86_400, description="Seconds.")]


class Eval(SystemAction, frozen=True, kw_only=True):
    """Score the workspace; submissions are limited."""

    name: ClassVar[str] = "eval"


class Finish(SystemAction, frozen=True, kw_only=True):
    """End the task when it is done."""

    name: ClassVar[str] = "finish"


SYSTEM_ACTIONS: tuple[type[SystemAction], ...] = (Think, Sleep, Eval, Finish)
