"""Places that a person can type: a step, a time, a permalink. Pure.

`1234` a step, `+5` and `-5` from here, `03:15` after that much active time (hours and minutes, or
with seconds), `-2h` as long ago by the clock, `R@1234` a step of a rollout.
"""

import re
from typing import Literal, NamedTuple

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
HELP = "1234, +5, 03:15 active time, -2h ago, ROLLOUT@1234"
_STEP = re.compile(r"[+-]?[0-9]{1,9}")
_ACTIVE = re.compile(r"([0-9]{1,5}):([0-5]?[0-9])(?::([0-5]?[0-9]))?")
_AGO = re.compile(r"-([0-9]{1,6})([smhd])")
_LINK = re.compile(r"([^\s@]{1,200})@([0-9]{1,9})")


class Place(NamedTuple):
    """Somewhere to go."""

    kind: Literal["step", "active", "ended", "link"]
    value: int
    """A step, or microseconds: of active time, or of the clock in UTC."""
    rollout: str = ""
    """Of a link: the rollout's id or a unique part of it."""


def parse(text: str, cursor: int, now_us: int) -> Place | None:
    """The place that `text` names, seen from step `cursor` at `now_us`; None when it names none."""
    text = text.strip()
    if _STEP.fullmatch(text):
        return Place("step", max(0, int(text) + (cursor if text[0] in "+-" else 0)))
    if found := _ACTIVE.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return Place("active", (hours * 3600 + minutes * 60 + seconds) * 1_000_000)
    if found := _AGO.fullmatch(text):
        return Place("ended", now_us - int(found[1]) * UNITS[found[2]] * 1_000_000)
    if found := _LINK.fullmatch(text):
        return Place("link", int(found[2]), found[1])
    return None


def link(rollout: str, step: int) -> str:
    """The permalink of a step."""
    return f"{rollout}@{step}"


def command(rollout: str, step: int) -> str:
    """The command that shows exactly this step."""
    return f"houston steps {link(rollout, step)} --full"
