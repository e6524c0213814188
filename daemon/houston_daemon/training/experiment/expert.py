"""A scripted agent that knows a solution and has bad habits: an imperfect expert.

It plays the part that a stronger model plays in APOLLO: what is learned from is sampled by it, and
people bring it back when it drifts. Everything follows from the conversation and a seed, so that a
rollout that goes on after a kill goes on alike. Whether somebody speaks is not its business.
"""

import random
from collections.abc import Callable, Sequence

from houston_daemon.training.experiment.endpoint import Conversation, Turn
from houston_daemon.training.experiment.progress import FINISH, Progress, plain, progress
from houston_daemon.training.experiment.recipe import Expert

LOOKS = {
    "scienceworld": ("look around", "inventory"),
    "textworld": ("look", "inventory"),
}
"""By environment, the commands that change nothing."""
Commands = Sequence[str]
_TRIES = ("try to {}", "now {} please", "begin to {}", "help me {}")
_CONTENT = "This may be good enough."
_LOST = "I have another look."
_GUESS = "Perhaps it is said so."
_BACK = "The person is right: back to the task, step by step."


class ImperfectExpert:
    """See the module. world: what solves the world of a conversation, and looks that it knows."""

    def __init__(
        self, habits: Expert, seed: int, world: Callable[[Conversation], tuple[Commands, Commands]]
    ) -> None:
        self._habits = habits
        self._seed = seed
        self._world = world

    def __call__(self, seen: Conversation) -> Turn:
        """The next step."""
        solution, looks = self._world(seen)
        stands = progress(solution, seen.actions)
        if stands.done == len(solution):
            return Turn("The task is done.", FINISH, {})
        command = solution[stands.done]
        habit = "" if plain(command) in looks else self._habit(seen, stands.done)
        heard = any(seen.heard_after(seen.step - 1 - back) for back in range(stands.idle))
        if not habit or heard:
            return _act(_BACK if seen.heard else "", command)
        return self._drifting(seen, habit, stands, command, looks)

    def _habit(self, seen: Conversation, place: int) -> str:
        """The habit that takes over before a command of the solution; "" for none."""
        source = self._source(seen, place, "habit")
        if not self._habits.habits or source.random() >= self._habits.drift:
            return ""
        return source.choice(self._habits.habits)

    def _drifting(
        self, seen: Conversation, habit: str, stands: Progress, command: str, looks: Commands
    ) -> Turn:
        place, idle = stands.done, stands.idle
        most = self._habits.steps - (habit == "quit")
        if idle >= most:
            gives_up = self._source(seen, place, "end").random() < self._habits.gives_up
            return Turn(_CONTENT, FINISH, {}) if gives_up else _act("", command)
        if habit == "quit":
            return _act(_CONTENT, looks[idle % len(looks)])
        if habit == "guess":
            return _act(_GUESS, _TRIES[(place + idle) % len(_TRIES)].format(command))
        return _act(_LOST, looks[idle % len(looks)])

    def _source(self, seen: Conversation, place: int, what: str) -> random.Random:
        return random.Random(f"{self._seed}:{seen.task}:{place}:{what}")


def _act(thought: str, command: str) -> Turn:
    return Turn(thought, "act", {"action": command})
