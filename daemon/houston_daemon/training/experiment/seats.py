"""The specs of the rollouts whose conversations a scripted endpoint plays."""

import threading

from houston_daemon.training.experiment.endpoint import Conversation
from houston_daemon.training.experiment.own_home import OwnHome
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.store.queries import rollouts


class Seats:
    """Specs by rollout, each read once; safe to use from threads.

    A rollout names itself with each request. Its task would not do: worlds of ScienceWorld differ
    whose tasks are word for word the same.
    """

    def __init__(self, ground: OwnHome) -> None:
        self._ground = ground
        self._known: dict[str, RolloutSpec] = {}
        self._one = threading.Lock()

    def of(self, seen: Conversation) -> RolloutSpec:
        """The spec of the rollout whose conversation it is. Raises HoustonError."""
        with self._one:
            if seen.rollout not in self._known:
                self._look()
            if seen.rollout not in self._known:
                raise HoustonError(f"The home of the experiment has no rollout {seen.rollout!r}.")
            return self._known[seen.rollout]

    def _look(self) -> None:
        for one in self._ground.read(rollouts.all_rollouts()):
            if one.id not in self._known:
                self._known[one.id] = self._ground.read(rollouts.spec(one))
