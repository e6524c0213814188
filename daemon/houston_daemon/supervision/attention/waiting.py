"""Signals about time that passes: long sleeps, and sleeps in which nothing runs."""

import re
from collections.abc import Iterable

from houston_daemon.supervision.attention.window import CallSeen, StepSeen, Window
from houston_shared.task import Attention

_APART = re.compile(r"(?<![&>|<])&(?![&>])|\b(?:nohup|setsid|disown|sbatch|screen|tmux)\b")
"""A command that may leave something running which no session shows."""


def long_sleep(window: Window, limits: Attention) -> str:
    """One sleep took long."""
    least = limits.long_sleep_seconds
    asked = max(map(_asked, window.now.calls), default=0.0)
    return f"asked to sleep for {_time(asked)}" if least and asked >= least else ""


def idle_sleep(window: Window, limits: Attention) -> str:
    """It slept while no session ran anything, and nothing was started apart from the sessions."""
    least = limits.idle_sleep_seconds
    idle = [call for call in window.now.calls if call.fields.get("running") == []]
    asked = max(map(_asked, idle), default=0.0)
    if not least or asked < least or started_apart(window.steps):
        return ""
    return f"asked to sleep for {_time(asked)} while nothing ran in any session"


def started_apart(steps: Iterable[StepSeen]) -> bool:
    """Whether a command of these steps may have left something running which no session shows."""
    commands = (str(call.arguments.get("command", "")) for step in steps for call in step.calls)
    return any(map(starts_apart, commands))


def starts_apart(command: str) -> bool:
    """Whether a command may leave something running which no session shows."""
    return _APART.search(command) is not None


def _asked(call: CallSeen) -> float:
    """Seconds of a sleep; 0 for other calls."""
    asked = call.fields.get("asked") if call.kind == "sleep" else None
    return float(asked) if isinstance(asked, int | float) else 0.0


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"
