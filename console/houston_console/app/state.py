"""What the console knows and shows, apart from any widget: rollouts, the daemon, the queue.

Nothing here reads a file or a socket; `pump` and `link` bring what changed, widgets ask for lines.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from houston_console.app.rollouts.plans import Overview
from houston_shared.store.queries.rollouts import Rollout

LinkState = Literal["live", "reconnecting", "down"]
"""`down`: no daemon holds the home. `reconnecting`: one does, and does not answer."""


class Attention(NamedTuple):
    """Why somebody should look at a rollout, the weightiest first."""

    weight: int
    reasons: tuple[str, ...]


class Listed(NamedTuple):
    """One line of the selector: a task (no rollout), or one of its rollouts."""

    task: str
    rollout: Rollout | None
    attention: Attention = Attention(0, ())
    waiting: int = 0
    """Guidance that is queued."""


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

    def take(self, seen: Overview) -> bool:
        """Merge what was read; returns whether the selector shows something else now."""
        before = (dict(self.rollouts), self.waiting)
        self.rollouts.update((one.id, one) for one in seen.rollouts)
        self.waiting = seen.waiting
        self.seq = max(self.seq, seen.seq)
        return before != (self.rollouts, self.waiting)

    @property
    def lag(self) -> int:
        """Events that were announced and not read yet."""
        return max(0, self.announced - self.seq)

    @property
    def current(self) -> Rollout | None:
        """The rollout that is open."""
        return self.rollouts.get(self.selected)

    def listed(self) -> list[Listed]:
        """The selector: tasks by name, in each the rollouts in the order they were started."""
        by_task: dict[str, list[Rollout]] = {}
        for one in sorted(self.rollouts.values(), key=lambda one: (one.created_at, one.id)):
            by_task.setdefault(one.task, []).append(one)
        found: list[Listed] = []
        for task in sorted(by_task):
            found.append(Listed(task, None))
            for one in by_task[task]:
                waiting = self.waiting.get(one.id, 0)
                found.append(Listed(task, one, attention(one, waiting), waiting))
        return found

    def first_choice(self) -> str:
        """The rollout to open when none was named: running before others, newest first."""
        order = sorted(
            self.rollouts.values(),
            key=lambda one: (one.state not in ("running", "paused"), -one.created_at),
        )
        return order[0].id if order else ""

    def counts(self) -> list[tuple[str, int]]:
        """Rollouts by state, for the status line; states without one are left out."""
        states = [one.state for one in self.rollouts.values()]
        kinds = ("running", "paused", "queued", "failed", "finished", "cancelled")
        return [(kind, states.count(kind)) for kind in kinds if kind in states]


def attention(one: Rollout, waiting: int) -> Attention:
    """Signals of one rollout that need no look at its steps."""
    reasons: list[tuple[int, str]] = []
    if one.state == "failed":
        reasons.append((100, one.reason or "failed"))
    if one.state == "paused":
        reasons.append((50, f"paused by {one.paused_by}" if one.paused_by else "paused"))
    if waiting:
        reasons.append((30, f"{waiting} waiting"))
    if one.errors:
        reasons.append((min(20, one.errors), f"{one.errors} with errors"))
    if one.sandbox == "none":
        reasons.append((1, "no sandbox"))
    reasons.sort(key=lambda reason: -reason[0])
    return Attention(sum(weight for weight, _ in reasons), tuple(text for _, text in reasons))
