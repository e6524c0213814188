"""The stage that samples what is learned from: rollouts of all kinds of worlds, and orders.

Once with the annotator (`guided`) and once without (`alone`); both see the same worlds. The
scripted expert samples through its endpoint, or the model itself does, as the recipe says; rollouts
with orders are always the scripted agent's.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from houston_daemon.training.experiment import obedience, serving, world_tasks
from houston_daemon.training.experiment.annotator import AUTHOR, Speaking
from houston_daemon.training.experiment.endpoint import Conversation, Turn
from houston_daemon.training.experiment.expert import LOOKS, ImperfectExpert
from houston_daemon.training.experiment.obedient import Obedient
from houston_daemon.training.experiment.ordering import Ordering, shared
from houston_daemon.training.experiment.orders import Order, draw
from houston_daemon.training.experiment.run import GUIDED, MODEL, Run
from houston_daemon.training.experiment.seats import Seats
from houston_daemon.training.experiment.solutions import Solutions
from houston_daemon.training.experiment.stages import Begun
from houston_daemon.training.experiment.watching import Watching
from houston_shared.policy_names import BASE
from houston_shared.task import parse_task

EXPERT_SEED = 1
"""Of where the expert drifts: the same with and without the annotator."""
ORDER_SEED = 1
"""Of the orders that are learned from: the same for all arms and seeds."""
SPARE_STEPS = 3
"""Steps of an agent with orders besides those that follow one."""


class Agents:
    """What the scripted endpoint plays: orders where a conversation heard one, worlds elsewhere."""

    def __init__(self, run: Run, engine: str, solutions: Solutions) -> None:
        self._run = run
        self._guided = engine == GUIDED
        self._seats = Seats(run.ground)
        self.solutions = solutions
        self._expert = ImperfectExpert(run.recipe.expert, EXPERT_SEED, self._world)
        self.orders = learned(run)
        steps = run.recipe.orders.each + SPARE_STEPS
        agent = Obedient(self.orders, run.orders.train, steps, self._place)
        self._said: dict[str, Sequence[Order]] = {}
        self._ordering = Ordering(agent, run.ground, self._orders)

    def give(self, project: str, orders: Sequence[Order], count: int) -> None:
        """Share orders out among the rollouts of a task, before they start; alone, none hears any.

        count: rollouts; they are known by their seeds, from `ORDER_SEED` on.
        """
        if self._guided:
            for at, some in enumerate(shared(orders, count)):
                self._said[f"{project}:{ORDER_SEED + at}"] = some

    def __call__(self, seen: Conversation) -> Turn:
        """One step of whichever agent it is."""
        if "act" not in seen.tools:
            return self._ordering(seen)
        if self._guided:
            self._annotate(seen)
        return self._expert(seen)

    def _place(self, seen: Conversation) -> str:
        """Task and seed of a conversation's rollout: the same in another run."""
        spec = self._seats.of(seen)
        return f"{spec.task.name}:{spec.seed}"

    def _orders(self, seen: Conversation) -> Sequence[Order]:
        return self._said.get(self._place(seen), ())

    def _world(self, seen: Conversation) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What solves a conversation's world, and looks that it knows."""
        spec = self._seats.of(seen)
        return self.solutions.of(spec.rollout, spec), LOOKS[parse_task(spec.task).environment]

    def _annotate(self, seen: Conversation) -> None:
        """Speak while the step is sampled: it is heard at its end."""
        spec = self._seats.of(seen)
        speaking = Speaking(self._run.recipe.annotator, self.solutions.of(spec.rollout, spec))
        if word := speaking.word(seen.actions, seen.observation, len(seen.all_heard)):
            self._run.ground.say(spec.rollout, word, AUTHOR)


def learned(run: Run) -> list[Order]:
    """The orders to learn from, all different."""
    wanted = run.recipe.orders
    if not wanted.train:
        return []
    return draw(run.orders, "train", wanted.train * wanted.each, ORDER_SEED)


def sample(run: Run, engine: str, agents: Agents, begun: Begun) -> dict[str, Any]:
    """Sample, wait for the end; the rollouts with what each was for, in the order they began.

    Raises Spoiled where a model sampled that was trained already, or nobody watched it.
    """
    policy = run.recipe.sampler == "policy"
    name = MODEL if policy else engine
    if policy:
        serving.activate(run, BASE)  # an arm that was measured before may be active
    found: dict[str, str] = {}
    for worlds in run.recipe.worlds:
        model, sandbox = run.recipe.model, run.recipe.sandbox
        task = world_tasks.write(run.tasks, worlds, "train", model, sandbox)
        if worlds.train:
            ids = begun.get(worlds.name, partial(run.ground.begin, task, name, 0, worlds.train))
            found |= dict.fromkeys(ids, worlds.name)
    found |= _orders(run, engine, agents, begun)
    watch = policy and engine == GUIDED
    look = Watching(run, found, agents.solutions, begun).look if watch else None
    ended = run.ground.wait(found, run.seconds, look)
    serving.check(ended, "")
    return {"rollouts": found, "states": {one.id: one.state for one in ended}}


def _orders(run: Run, engine: str, agents: Agents, begun: Begun) -> dict[str, str]:
    """Rollouts with orders; alone, nobody gives any."""
    found: dict[str, str] = {}
    settings = {
        "steps": run.recipe.orders.each + SPARE_STEPS,
        "answer_tokens": run.recipe.model.answer_tokens,
        "temperature": run.recipe.model.temperature,
        "sandbox": run.recipe.sandbox,
    }
    some = agents.orders
    for task, chunk in obedience.tasks(run.tasks, run.orders, "train", some, ORDER_SEED, settings):
        count = len(chunk) // run.recipe.orders.each
        agents.give(task.parent.name, chunk, count)
        make = partial(run.ground.begin, task, engine, ORDER_SEED, count)
        found |= dict.fromkeys(begun.get(task.parent.name, make), "orders")
    return found
