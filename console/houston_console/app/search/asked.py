"""What is being asked for, and how it is shown while it is typed. Pure."""

from typing import NamedTuple, TypeVar

from houston_console.app.drawing.lines import Line, Span, span
from houston_shared.store.finding.query import MODES, WHATS, WHERES, Mode, Query, What, Where

T = TypeVar("T")
NAMES = {
    "literal": "as written",
    "regex": "pattern",
    "words": "words",
    "rollout": "this rollout",
    "task": "this task",
    "all": "all rollouts",
    "steps": "steps",
    "diffs": "diffs",
    "searches": "searches, web",
    "terminals": "terminals",
}


class Asked(NamedTuple):
    """A search while it is written."""

    text: str = ""
    mode: Mode = "literal"
    where: Where = "rollout"
    what: What = "steps"

    def turned(self, toggle: str) -> "Asked":
        """The next choice of a toggle: `mode`, `where` or `what`."""
        if toggle == "mode":
            return self._replace(mode=_after(MODES, self.mode))
        if toggle == "where":
            return self._replace(where=_after(WHERES, self.where))
        return self._replace(what=_after(WHATS, self.what))

    def query(self, rollout: str, task: str) -> Query:
        """The search, at the rollout that is open."""
        return Query(str(self.text), self.mode, self.where, self.what, rollout=rollout, task=task)

    @property
    def in_place(self) -> bool:
        """Whether what is found is shown in the trajectory itself, not in a list of places."""
        return self.where == "rollout" and self.what == "steps"

    def toggles(self, room: int) -> Line:
        """The choices there are, those that are on between brackets; short where it is narrow."""
        found: list[Span] = []
        for key, name, choices in (
            ("^r", "mode", MODES),
            ("^o", "where", WHERES),
            ("^t", "what", WHATS),
        ):
            on = getattr(self, name)
            found.append(span(f" {key} ", "tool"))
            shown = choices if room >= WIDE else (on,)
            for choice in shown:
                label = NAMES[choice]
                found.append(
                    span(f"‹{label}› ", "title") if choice == on else span(f"{label} ", "faint")
                )
        return tuple(found)


def _after(choices: tuple[T, ...], now: T) -> T:
    return choices[(choices.index(now) + 1) % len(choices)]


WIDE = 125
"""Cells from which every choice is named."""
EARLIER = 50
"""Searches that are remembered while the console runs."""


class Earlier:
    """Searches of before, to be asked again."""

    def __init__(self) -> None:
        self._asked: list[Asked] = []
        self._at = 0

    def add(self, asked: Asked) -> None:
        """It was asked: the newest from now on."""
        rest = [one for one in self._asked if one.text != asked.text]
        self._asked = [*rest, asked][-EARLIER:] if asked.text else rest
        self._at = len(self._asked)

    def begin(self) -> None:
        """Walk from the newest again."""
        self._at = len(self._asked)

    def walk(self, by: int) -> Asked | None:
        """The one before, or after; None past either end."""
        at = self._at + by
        if not 0 <= at < len(self._asked):
            return None
        self._at = at
        return self._asked[at]
