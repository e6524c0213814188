"""What an evaluation found, and how it reads."""

from typing import Any, ClassVar

from houston_daemon.environments.observation import Observation, Text, render
from houston_shared.plural import many


class Scored(Observation, frozen=True, kw_only=True):
    """What an evaluation gave."""

    kind: ClassVar[str] = "eval"
    bulk: ClassVar[tuple[str, ...]] = ("metrics", "left")
    overall_score: float | None
    """0 to 100."""
    state: str
    """`scored`, `format` (the evaluator's output is wrong), `failed` (crash, time, interrupted)."""
    counted: bool
    """Whether it used up a submission."""
    seconds: float
    metrics: dict[str, Any] = {}
    left: int = 0
    """Submissions left after it."""
    detail: str = ""
    """The evaluator's last words on stderr: for people, never shown to the agent."""
    snapshot: str = ""
    """The workspace as it was scored: a commit of the shadow repository, large files stored."""
    finished: bool = False
    """Whether it ends the rollout; named here so that no metric can say so."""

    def fields(self) -> dict[str, Any]:
        """Metrics stand beside the score; a metric cannot take the name of a field."""
        return {**self.metrics, **Observation.fields(self)}


@render.register
def _(one: Scored) -> Text:
    left = f"{many(one.left, 'submission')} left"
    if one.state != "scored":
        return Text(f"Error: {one.error} No submission was used; {left}.")
    lines = [f"{name}: {value}" for name, value in one.metrics.items()]
    return Text(f"overall_score: {one.overall_score:g} of 100 ({left})", "\n".join(lines))
