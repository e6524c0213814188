"""The simulated annotator beside rollouts that a model samples: it reads what is recorded.

It may come a step late, as a person may; each step is looked at once. How far it looked is kept: a
rollout that went on to its end while nobody was here is no guided one.
"""

from collections.abc import Iterable

from houston_daemon.training.experiment.annotator import AUTHOR, Speaking
from houston_daemon.training.experiment.own_home import OVER, Spoiled
from houston_daemon.training.experiment.run import Run
from houston_daemon.training.experiment.solutions import Solutions
from houston_daemon.training.experiment.stages import Begun
from houston_shared.errors import HoustonError
from houston_shared.records import StepRecord
from houston_shared.store import step_view
from houston_shared.store.queries import rollouts

LOOKED = "looked at"
"""Key in what a stage began: by rollout the last step that was looked at."""


class Watching:
    """Looks at some rollouts whenever it is asked to.

    begun: of the stage; keeps by rollout the last step that was looked at. Raises Spoiled where one
    of a stage that goes on ended unwatched.
    """

    def __init__(self, run: Run, some: Iterable[str], solutions: Solutions, begun: Begun) -> None:
        self._run = run
        self._some = set(some)
        self._solutions = solutions
        self._begun = begun
        self._looked: dict[str, int] = begun.get(LOOKED, dict)
        if begun.goes_on:
            self._refuse_unwatched()

    def look(self) -> None:
        """Look at every running rollout that has a new step, and speak where it drifts."""
        before = dict(self._looked)
        for one in self._run.ground.read(rollouts.all_rollouts("", "running")):
            seen = before.get(one.id, 0)
            if one.id in self._some and one.steps > seen:
                self._at(one, seen)
                self._looked[one.id] = one.steps
        if self._looked != before:
            self._begun.put(LOOKED, self._looked)

    def _refuse_unwatched(self) -> None:
        """After the last step nobody could be heard; any other may have needed a word."""
        mine = [
            one for one in self._run.ground.read(rollouts.all_rollouts()) if one.id in self._some
        ]
        unwatched = [
            one for one in mine if one.state in OVER and one.steps > self._looked.get(one.id, 0) + 1
        ]
        if unwatched:
            why = "it went on to its end while nobody watched"
            raise Spoiled(len(unwatched), len(mine), unwatched[0].id, why)

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
