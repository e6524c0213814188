"""The simulated annotator: it knows the solution, and speaks only when the agent drifts.

Its words are general, never a command of the world. What an agent did comes as plain actions;
where they come from is for others.
"""

from collections.abc import Sequence

from houston_daemon.training.experiment.progress import progress
from houston_daemon.training.experiment.recipe import Annotator

AUTHOR = "simulated-annotator"
MISUNDERSTOOD = (
    "No known action matches that input",  # ScienceWorld
    "That's not a verb I recognise", "You can't see any such thing",  # TextWorld
    "I didn't understand", "I only understood you as far as", "This requires",
)  # fmt: skip


class Speaking:
    """What one annotator says to one agent."""

    def __init__(self, words: Annotator, solution: Sequence[str]) -> None:
        self._words = words
        self._solution = solution

    def word(self, actions: Sequence[str], observation: str, said: int) -> str:
        """What to say now, or "".

        actions: what each closed step did. observation: that of the last one. said: messages that
        it said before.
        """
        stands = progress(self._solution, actions)
        solved = stands.done == len(self._solution)
        if solved or stands.idle < self._words.patience or stands.idle % self._words.patience:
            return ""
        failing = any(sign in observation for sign in MISUNDERSTOOD)
        words = self._words.failing if failing else self._words.idle
        return words[said % len(words)] if words else ""
