"""The simulated annotator of rollouts in which obedience is learned: one order after the other.

An order is said while the agent samples the step at whose end it is heard: the first with the first
step, the others with the step that follows the last one. So it is the same in every run, and no
rollout goes on while nobody speaks. What was said stands in the journal: nothing is said twice.
"""

from collections.abc import Callable, Sequence

from houston_daemon.training.experiment.annotator import AUTHOR
from houston_daemon.training.experiment.endpoint import Conversation, Play, Turn
from houston_daemon.training.experiment.orders import Order
from houston_daemon.training.experiment.own_home import OwnHome


class Ordering:
    """Plays `agent` and speaks to it. A quiet step follows every `every` orders.

    orders: those of a conversation's rollout; none where nobody speaks.
    """

    def __init__(
        self,
        agent: Play,
        ground: OwnHome,
        orders: Callable[[Conversation], Sequence[Order]],
        every: int = 3,
    ) -> None:
        self._agent = agent
        self._ground = ground
        self._orders = orders
        self._every = every

    def __call__(self, seen: Conversation) -> Turn:
        """The agent's turn; before it is given, what the person says meanwhile is queued."""
        if orders := self._orders(seen):
            self._speak(seen, orders)
        return self._agent(seen)

    def _speak(self, seen: Conversation, orders: Sequence[Order]) -> None:
        told = self._ground.guidance(seen.rollout)
        quiet = seen.heard and len(told) % self._every == 0
        if quiet or any(one.state == "queued" for one in told):
            return
        texts = {one.text for one in told}
        if left := [one for one in orders if one.text not in texts]:
            self._ground.say(seen.rollout, left[0].text, AUTHOR)


def shared(orders: Sequence[Order], count: int) -> list[Sequence[Order]]:
    """The orders of each of `count` rollouts: all get equally many, the first ones first."""
    each = len(orders) // count
    return [orders[at * each : (at + 1) * each] for at in range(count)]
