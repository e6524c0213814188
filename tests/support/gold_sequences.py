"""Action sequences that solve ScienceWorld's tasks, as its own simulator gives them."""

from collections.abc import Iterable
from typing import Any

from houston_daemon.environments.simulation.scienceworld_simulator import connect


class Gold:
    """One Java machine of this process."""

    def __init__(self) -> None:
        # The search for a sequence needs neither the same order every time nor a quick start.
        _, self.world = connect(("-Xmx1g", "-XX:-UsePerfData"))

    def sequence(self, task: str, variation: int) -> list[str]:
        """The actions that win a variation."""
        self.world.load(task, variation, "", True)
        return [str(action) for action in self.world.getGoldActionSequence()]


def script(actions: Iterable[str], delay: float = 0.0) -> list[dict[str, Any]]:
    """Steps of a script engine: an act each."""
    return [
        {
            "thought": f"I {action}.",
            "calls": [{"name": "act", "arguments": {"action": action}}],
            "delay": delay,
        }
        for action in actions
    ]
