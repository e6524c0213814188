"""An answer with its score, and how it reads: the agent is not told the score."""

from typing import ClassVar

from houston_daemon.environments.observation import Observation, Text, render


class Answered(Observation, frozen=True, kw_only=True):
    """An answer with its score, or the score of none; the fields of an evaluation."""

    kind: ClassVar[str] = "eval"
    overall_score: float
    """0 to 100."""
    state: str = "scored"
    counted: bool = True
    seconds: float = 0.0
    exact_match: float = 0.0
    f1: float = 0.0
    """0 to 1."""
    question_id: str
    finished: bool
    """Whether it ends the rollout."""


class TooLate(Observation, frozen=True, kw_only=True):
    """An answer beyond those that the task allows: the one before stands."""

    kind: ClassVar[str] = "answer"
    finished: bool = True


@render.register
def _(one: Answered) -> Text:
    return Text("The answer is taken." if one.finished else "No answer was given.")


@render.register
def _(one: TooLate) -> Text:
    return Text("The answer that was given before stands; this one does not count.")
