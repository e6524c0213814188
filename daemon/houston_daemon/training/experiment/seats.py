"""Which rollout a conversation belongs to: by the task that stands in its head.

A chat endpoint is told messages, not rollouts. Worlds differ, so their heads do; where two were the
same, both would be played alike and spoken to alike.
"""

import threading

from houston_daemon.training.experiment.endpoint import Conversation
from houston_daemon.training.experiment.own_home import OwnHome
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.store.queries import rollouts


class Seats:
    """Rollouts of one engine of a home by the task of their head; safe to use from threads."""

    def __init__(self, ground: OwnHome, engine: str) -> None:
        self._ground = ground
        self._engine = engine
        self._known: dict[str, tuple[str, RolloutSpec]] = {}
        self._looked: set[str] = set()
        self._one = threading.Lock()

    def of(self, seen: Conversation) -> tuple[str, RolloutSpec]:
        """Id and spec of the running rollout whose conversation it is. Raises HoustonError."""
        with self._one:
            if seen.task not in self._known:
                self._look()
            if seen.task not in self._known:
                raise HoustonError("A conversation belongs to no rollout of the experiment's home.")
            return self._known[seen.task]

    def _look(self) -> None:
        for one in self._ground.read(rollouts.all_rollouts()):
            if one.id in self._looked or one.engine != self._engine or one.head_seq is None:
                continue
            head, spec = (
                self._ground.read(rollouts.head(one)),
                self._ground.read(rollouts.spec(one)),
            )
            self._looked.add(one.id)
            if head is not None and one.state not in ("finished", "failed", "cancelled"):
                self._known[head.task] = (one.id, spec)
