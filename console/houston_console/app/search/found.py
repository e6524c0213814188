"""What a search has found so far, and where in it somebody is. Pure."""

from bisect import bisect_left, bisect_right, insort
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
    at: int = -1
    """The place of the list that was gone to last; −1 for none."""

    @property
    def in_place(self) -> bool:
        """Whether it is shown in the trajectory itself."""
        return self.query.where == "rollout" and self.query.what == "steps"

    def take(self, progress: Progress) -> None:
        """More was found, or all."""
        self.hits += progress.hits[: LISTED - len(self.hits)]
        self.count += len(progress.hits)
        self.done, self.notes = progress.done, progress.notes
        if self.in_place:
            new = {hit.step for hit in progress.hits if hit.step}
            if len(new) > len(self.steps) // 8:
                self.steps = sorted(new.union(self.steps))
            else:
                for step in new.difference(self.steps):
                    insort(self.steps, step)

    def tally(self, cursor: int) -> str:
        """Where somebody is among what was found: `3/12`, with `…` while it grows."""
        more = "" if self.done else "…"
        if self.in_place:
            return f"{bisect_right(self.steps, cursor)}/{len(self.steps)}{more}"
        place = f"{self.at + 1}/" if self.at >= 0 else ""
        return f"{place}{self.count}{more} in {NAMES[self.query.where]}, {NAMES[self.query.what]}"

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


def hit_line(hit: Hit, width: int) -> Line:
    """One place of the list: rollout, step, what it is, the words around it."""
    place = f"{hit.rollout}@{hit.step}" if hit.step else hit.rollout
    left = line(
        span(f" {fit(place, min(32, max(12, width // 4)))} ", "number"),
        span(f"{fit(hit.name, min(16, max(8, width // 8)))} ", "tool"),
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
