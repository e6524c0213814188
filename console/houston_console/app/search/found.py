"""What a search has found so far, and where in it somebody is. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from houston_console.app.drawing.lines import Line, fit, line, span, width_of
from houston_console.app.search.asked import NAMES
from houston_shared.store.finding.looking import Hit, Progress
from houston_shared.store.finding.query import Query

LISTED = 5_000
"""Places that are kept to be listed; all are counted."""


@dataclass
class Found:
    """The answer to one query, while it grows."""

    query: Query
    hits: list[Hit] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """Steps with a hit, in order."""
    count: int = 0
    done: bool = False
    notes: tuple[str, ...] = ()
    words: dict[int, str] = field(default_factory=dict)
    """By step, the words around its newest place."""
    at: int = -1
    """The place of the list that was gone to last; −1 for none."""

    @property
    def in_place(self) -> bool:
        """Whether it is shown in the trajectory itself."""
        return self.query.where == "rollout" and self.query.what == "steps"

    def take(self, progress: Progress, more: Sequence[int] = ()) -> None:
        """More was found, or all. more: steps of hits that came without their words."""
        self.hits += progress.hits[: LISTED - len(self.hits)]
        self.count += len(progress.hits) + len(more)
        self.done, self.notes = self.done or progress.done, progress.notes
        if self.in_place:
            for hit in progress.hits if len(self.words) < LISTED else ():
                self.words.setdefault(hit.step, hit.snippet)
            self._add(sorted({hit.step for hit in progress.hits}.union(more) - {0}))

    def _add(self, new: list[int]) -> None:
        """Newest first they come, so that most go before all that are there."""
        if not new or not self.steps or new[-1] < self.steps[0]:
            self.steps = new + self.steps
        else:
            self.steps = sorted({*new, *self.steps})

    def tally(self, cursor: int) -> str:
        """Where somebody is among what was found: `3/12`, with `…` while it grows."""
        more = "" if self.done else "…"
        if self.in_place:
            return f"{bisect_right(self.steps, cursor)}/{len(self.steps)}{more}"
        place = f"{self.at + 1}/" if self.at >= 0 else ""
        return f"{place}{self.count}{more} in {NAMES[self.query.where]}, {NAMES[self.query.what]}"

    @property
    def total(self) -> str:
        """How much was found so far."""
        more = "" if self.done else "…"
        if self.in_place:
            return f"{len(self.steps)}{more} step{'s' * (len(self.steps) != 1)}"
        return f"{self.count}{more} found"

    def said(self, step: int) -> str:
        """The words around what was found in a step; empty where they were not kept."""
        return self.words.get(step, "")

    def near(self, cursor: int) -> int | None:
        """The step to go to first: the next one, or the last before the cursor."""
        if not self.steps:
            return None
        at = bisect_left(self.steps, cursor)
        return self.steps[min(at, len(self.steps) - 1)]

    def step(self, cursor: int, by: int) -> int | None:
        """The next step with a hit or the one before, round the end."""
        if not self.steps:
            return None
        at = bisect_right(self.steps, cursor) if by > 0 else bisect_left(self.steps, cursor) - 1
        return self.steps[at % len(self.steps)]

    def place(self, by: int) -> Hit | None:
        """The next place of the list or the one before, round the end."""
        if not self.hits:
            return None
        self.at = (max(self.at, 0 if by < 0 else -1) + by) % len(self.hits)
        return self.hits[self.at]


SHOWN = {"sample": "thought, call", "fork": "summary", "edit": "guidance", "bookmark": "note"}
"""What kinds of text are called for people, where it is another word."""


def place(hit: Hit) -> str:
    """A step's permalink; the rollout of what belongs to none."""
    return f"{hit.rollout}@{hit.step}" if hit.step else hit.rollout


def hit_line(hit: Hit, width: int, longest: int) -> Line:
    """One place of the list: where, what it is, the words around it. longest: cells of a place."""
    name = SHOWN.get(hit.name, hit.name)
    left = line(
        span(f" {fit(place(hit), min(longest, max(12, width // 3)))} ", "number"),
        span(f"{fit(name, min(16, max(8, width // 8)))} ", "tool"),
    )
    before, match, after = _around(hit, width - width_of(left))
    return line(*left, span(before, "dim"), span(match, "warning"), span(after, "dim"))


def _around(hit: Hit, room: int) -> tuple[str, str, str]:
    """What is before the match, it, and what is after: cut so that the match is seen."""
    before, match = hit.snippet[: hit.start], hit.snippet[hit.start : hit.end]
    most = max(0, min(len(before), room // 3))
    if most < len(before):
        before = "…" + before[len(before) - most :]
    rest = max(0, room - len(before) - len(match))
    return before, match, fit(hit.snippet[hit.end :], rest).rstrip()
