"""What the console knows and shows, apart from any widget: rollouts, the daemon, the queue.

Nothing here reads a file or a socket; `pump` and `link` bring what changed, widgets ask for lines.
"""

from dataclasses import dataclass, field
from typing import Literal

from houston_console.app.rollouts.needs import Board
from houston_console.app.rollouts.plans import Overview
from houston_shared.need import Need, Standing, ordered
from houston_shared.store.queries.rollouts import Rollout

LinkState = Literal["live", "reconnecting", "down"]
"""`down`: no daemon holds the home. `reconnecting`: one does, and does not answer."""


NOBODY = Board([])
"""Before anything was read."""


@dataclass
class ConsoleState:
    """Everything shown that is not the content of one rollout."""

    link: LinkState = "reconnecting"
    link_reason: str = ""
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    seq: int = 0
    """Newest sequence that was read."""
    announced: int = 0
    """Newest sequence that a notice named."""
    selected: str = ""
    me: str = ""
    """The name of who sits here, as others see it."""
    board: Board = NOBODY
    """Who needs a person, as it was read last."""
    read: bool = False
    """Whether it is known which rollouts there are."""
    offered: list[tuple[str, str]] = field(default_factory=list)
    """What can be taken back and how long still, the newest first."""
    problem: str = ""
    """Why the newest read failed; empty when it did not."""

    def take(self, seen: Overview) -> bool:
        """Merge what was read; returns whether the selector shows something else now."""
        before = (dict(self.rollouts), self.waiting)
        self.rollouts.update((one.id, one) for one in seen.rollouts)
        self.waiting = seen.waiting
        self.seq = max(self.seq, seen.seq)
        self.read = True
        return before != (self.rollouts, self.waiting)

    def nothing(self, read: bool) -> str:
        """What a list without rollouts says. read: whether what it lists was read."""
        if read:
            return " no rollouts yet"
        return f" not read: {self.problem}" if self.problem else " loading …"

    @property
    def lag(self) -> int:
        """Events that were announced and not read yet."""
        return max(0, self.announced - self.seq)

    @property
    def current(self) -> Rollout | None:
        """The rollout that is open."""
        return self.rollouts.get(self.selected)

    def needs(self) -> list[Need]:
        """Who needs a person most first, with the newest rows; what nobody judged yet is last."""
        judged = [self._newest(one) for one in self.board.needs]
        known = {one.standing.rollout.id for one in judged}
        others = [self._standing(one) for one in self.rollouts.values() if one.id not in known]
        return [*judged, *ordered(others, 0)]

    def _newest(self, one: Need) -> Need:
        row = one.standing.rollout
        newest = self._standing(self.rollouts.get(row.id, row))
        return one._replace(
            standing=one.standing._replace(rollout=newest.rollout, queued=newest.queued)
        )

    def _standing(self, one: Rollout) -> Standing:
        return Standing(one, queued=self.waiting.get(one.id, 0))

    def need(self, rollout: str) -> Need | None:
        """How one rollout stands; None before it was judged."""
        found = (one for one in self.board.needs if one.standing.rollout.id == rollout)
        return next(found, None)

    def only_one(self) -> str:
        """The rollout to open when none was named: where there is no choice."""
        return next(iter(self.rollouts)) if len(self.rollouts) == 1 else ""

    def counts(self) -> list[tuple[str, int]]:
        """Rollouts by state, for the status line; states without one are left out."""
        states = [one.state for one in self.rollouts.values()]
        kinds = ("running", "paused", "queued", "failed", "finished", "cancelled")
        return [(kind, states.count(kind)) for kind in kinds if kind in states]
