"""The simulated annotator beside rollouts that a model samples: it reads what is recorded.

It may come a step late, as a person may; each step is looked at once.
"""

from collections.abc import Iterable

from houston_daemon.training.experiment.annotator import AUTHOR, Speaking
from houston_daemon.training.experiment.run import Run
from houston_daemon.training.experiment.solutions import Solutions
from houston_shared.errors import HoustonError
from houston_shared.records import StepRecord
from houston_shared.store import step_view
from houston_shared.store.queries import rollouts


class Watching:
    """Looks at some rollouts whenever it is asked to."""

    def __init__(self, run: Run, some: Iterable[str], solutions: Solutions) -> None:
        self._run = run
        self._some = set(some)
        self._solutions = solutions
        self._looked: dict[str, int] = {}

    def look(self) -> None:
        """Look at every running rollout that has a new step, and speak where it drifts."""
        for one in self._run.ground.read(rollouts.all_rollouts("", "running")):
            before = self._looked.get(one.id, 0)
            if one.id in self._some and one.steps > before:
                self._looked[one.id] = one.steps
                self._at(one, before)

    def _at(self, one: rollouts.Rollout, before: int) -> None:
        """Judge every step after `before` as it was when it was the newest; speak once at most."""
        ground = self._run.ground
        steps = ground.steps(one.id)
        spec = ground.read(rollouts.spec(one))
        speaking = Speaking(self._run.recipe.annotator, self._solutions.of(one.id, spec))
        said = len(ground.guidance(one.id))
        words = [
            speaking.word(acted(steps[:last]), step_view.seen(steps[last - 1]), said)
            for last in range(before + 1, len(steps) + 1)
        ]
        if word := next(filter(None, words), ""):
            try:
                ground.say(one.id, word, AUTHOR)
            except HoustonError:
                if ground.read(rollouts.rollout(one.id)).state == "running":
                    raise
                # It ended while the word was found; nobody would hear it.


def acted(steps: Iterable[StepRecord]) -> tuple[str, ...]:
    """What each step did: the command of an `act`, else the name of its first tool."""
    return tuple(_action(one) for one in steps)


def _action(step: StepRecord) -> str:
    if not step.sample.calls:
        return ""
    call = step.sample.calls[0]
    return str(call.arguments.get("action", "")) if call.name == "act" else call.name
