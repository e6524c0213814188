"""The simulated annotator of rollouts in which obedience is learned: one order after the other.

The next order is said while the agent samples the step that follows the last one, so that it is
heard at that step's end. A rollout is known by the orders it has heard: none is said twice.
"""

from collections.abc import Mapping, Sequence

from houston_daemon.training.experiment.annotator import AUTHOR
from houston_daemon.training.experiment.endpoint import Conversation, Play, Turn
from houston_daemon.training.experiment.orders import Order
from houston_daemon.training.experiment.own_home import OwnHome


class Ordering:
    """Plays `agent` and speaks to it. A quiet step follows every `every` orders."""

    def __init__(self, agent: Play, ground: OwnHome, every: int = 3) -> None:
        self._agent = agent
        self._ground = ground
        self._every = every
        self._next: dict[str, tuple[str, Sequence[Order]]] = {}

    def begin(self, rollout: str, orders: Sequence[Order]) -> None:
        """Say the first of a rollout's orders; the others follow one by one."""
        for place, order in enumerate(orders):
            self._next[order.text] = (rollout, orders[place + 1 :])
        if not self._ground.guidance(rollout):  # a run that goes on said it before
            self._ground.say(rollout, orders[0].text, AUTHOR)

    def __call__(self, seen: Conversation) -> Turn:
        """The agent's turn; before it is given, what the person says meanwhile is queued."""
        said = seen.all_heard
        if said and said[-1] in self._next:
            rollout, left = self._next[said[-1]]
            quiet = len(said) % self._every == 0 and seen.heard
            told = {one.text for one in self._ground.guidance(rollout)} if left else set()
            if left and not quiet and left[0].text not in told:
                self._ground.say(rollout, left[0].text, AUTHOR)
        return self._agent(seen)


def shared(orders: Sequence[Order], rollouts: Sequence[str]) -> Mapping[str, Sequence[Order]]:
    """The orders of each rollout: all get equally many, the first ones first."""
    each = len(orders) // len(rollouts)
    return {one: orders[at * each : (at + 1) * each] for at, one in enumerate(rollouts)}
