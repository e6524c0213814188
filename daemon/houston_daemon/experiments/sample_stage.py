"""The stage that samples what is learned from: rollouts of all kinds of worlds, and orders.

Once with the annotator (`guided`) and once without; both see the same worlds. The scripted expert
samples through its endpoint, or the model itself does, as the recipe says; beside a model the
annotator reads what is recorded. Rollouts with orders are always the scripted agent's.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from houston_daemon.experiments import experiment_run, experiment_tasks, measure_stage
from houston_daemon.experiments.experiment_home import StageSpoiled
from houston_daemon.experiments.experiment_run import (
    GUIDED_ENGINE,
    MODEL_ENGINE,
    BegunWork,
    ExperimentRun,
)
from houston_daemon.experiments.experiment_tasks import WorldSolutions
from houston_daemon.experiments.order_vocabulary import SpokenOrder, draw_orders
from houston_daemon.experiments.scripted_agents import (
    ANNOTATOR_AUTHOR,
    LOOK_COMMANDS,
    ImperfectExpert,
    ObedientAgent,
    OrderingAnnotator,
    SimulatedAnnotator,
    share_orders,
)
from houston_daemon.experiments.scripted_endpoint import (
    PlayedConversation,
    ScriptedSpecs,
    ScriptedTurn,
)
from houston_shared.errors import HoustonError
from houston_shared.policy_and_run_files import BASE_MODEL
from houston_shared.records import ENDED_STATES, StepRecord
from houston_shared.store import rollout_queries, step_json
from houston_shared.task import parse_task_record

LOOKED_KEY = "looked at"
"""Key in what a stage began: by rollout the last step that was looked at."""


class AnnotatorWatch:
    """Looks at some rollouts whenever it is asked to.

    begun: of the stage; keeps by rollout the last step that was looked at. Raises StageSpoiled
    where one of a stage that goes on ended unwatched.
    """

    def __init__(
        self, run: ExperimentRun, some: Iterable[str], solutions: WorldSolutions, begun: BegunWork
    ) -> None:
        self._run = run
        self._some = set(some)
        self._solutions = solutions
        self._begun = begun
        self._looked: dict[str, int] = begun.get(LOOKED_KEY, dict)
        if begun.goes_on:
            self._refuse_unwatched()

    def look(self) -> None:
        """Look at every running rollout that has a new step, and speak where it drifts."""
        before = dict(self._looked)
        for one in self._run.ground.read(rollout_queries.list_rollouts("", "running")):
            seen = before.get(one.id, 0)
            if one.id in self._some and one.steps > seen:
                self._at(one, seen)
                self._looked[one.id] = one.steps
        if self._looked != before:
            self._begun.put(LOOKED_KEY, self._looked)

    def _refuse_unwatched(self) -> None:
        """After the last step nobody could be heard; any other may have needed a word."""
        listed = self._run.ground.read(rollout_queries.list_rollouts())
        watched = [rollout for rollout in listed if rollout.id in self._some]
        unwatched = [
            rollout
            for rollout in watched
            if rollout.state in ENDED_STATES and rollout.steps > self._looked.get(rollout.id, 0) + 1
        ]
        if unwatched:
            why = "it went on to its end while nobody watched"
            raise StageSpoiled(len(unwatched), len(watched), unwatched[0].id, why)

    def _at(self, one: rollout_queries.RolloutRow, before: int) -> None:
        """Judge every step after `before` as it was when it was the newest; speak once at most."""
        ground = self._run.ground
        steps = ground.steps(one.id)
        spec = ground.read(rollout_queries.read_rollout_spec(one))
        annotator = SimulatedAnnotator(
            self._run.recipe.annotator, self._solutions.solution_of(one.id, spec)
        )
        said = len(ground.guidance(one.id))
        words = [
            annotator.next_message(
                actions_of_steps(steps[:last]), step_json.observation_as_seen(steps[last - 1]), said
            )
            for last in range(before + 1, len(steps) + 1)
        ]
        if word := next(filter(None, words), ""):
            try:
                ground.queue_guidance(one.id, word, ANNOTATOR_AUTHOR)
            except HoustonError:
                if ground.read(rollout_queries.find_rollout(one.id)).state == "running":
                    raise

                # It ended while the word was found; nobody would hear it.


def actions_of_steps(steps: Iterable[StepRecord]) -> tuple[str, ...]:
    """What each step did: the command of an `act`, else the name of its first tool."""
    return tuple(_action_of_step(one) for one in steps)


def _action_of_step(step: StepRecord) -> str:
    if not step.sample.calls:
        return ""
    call = step.sample.calls[0]
    return str(call.arguments.get("action", "")) if call.name == "act" else call.name


EXPERT_SEED = 1
"""Of where the expert drifts: the same with and without the annotator."""
ORDER_SEED = 1
"""Of the orders that are learned from: the same for all arms and seeds."""
SPARE_STEPS = 3
"""Steps of an agent with orders besides those that follow one."""


class SamplingAgents:
    """What the scripted endpoint plays: orders where a conversation heard one, worlds elsewhere."""

    def __init__(self, run: ExperimentRun, engine: str, solutions: WorldSolutions) -> None:
        self._run = run
        self._guided = engine == GUIDED_ENGINE
        self._specs = ScriptedSpecs(run.ground)
        self.solutions = solutions
        self._expert = ImperfectExpert(run.recipe.expert, EXPERT_SEED, self._world_solution)
        self.orders = orders_to_learn(run)
        steps = run.recipe.orders.each + SPARE_STEPS
        agent = ObedientAgent(self.orders, run.orders.train, steps, self._rollout_key)
        self._said: dict[str, Sequence[SpokenOrder]] = {}
        self._ordering = OrderingAnnotator(agent, run.ground, self._orders)

    def assign_orders(self, project: str, orders: Sequence[SpokenOrder], count: int) -> None:
        """Share orders out among the rollouts of a task, before they start; alone, none hears any.

        count: rollouts; they are known by their seeds, from `ORDER_SEED` on.
        """
        if self._guided:
            for at, some in enumerate(share_orders(orders, count)):
                self._said[f"{project}:{ORDER_SEED + at}"] = some

    def __call__(self, seen: PlayedConversation) -> ScriptedTurn:
        """One step of whichever agent it is."""
        if "act" not in seen.tools:
            return self._ordering(seen)
        if self._guided:
            self._annotate(seen)
        return self._expert(seen)

    def _rollout_key(self, seen: PlayedConversation) -> str:
        """Task and seed of a conversation's rollout: the same in another run."""
        spec = self._specs.spec_of(seen)
        return f"{spec.task.name}:{spec.seed}"

    def _orders(self, seen: PlayedConversation) -> Sequence[SpokenOrder]:
        return self._said.get(self._rollout_key(seen), ())

    def _world_solution(self, seen: PlayedConversation) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What solves a conversation's world, and looks that it knows."""
        spec = self._specs.spec_of(seen)
        return self.solutions.solution_of(spec.rollout, spec), LOOK_COMMANDS[
            parse_task_record(spec.task).environment
        ]

    def _annotate(self, seen: PlayedConversation) -> None:
        """Speak while the step is sampled: it is heard at its end."""
        spec = self._specs.spec_of(seen)
        annotator = SimulatedAnnotator(
            self._run.recipe.annotator, self.solutions.solution_of(spec.rollout, spec)
        )
        if word := annotator.next_message(seen.actions, seen.observation, len(seen.all_heard)):
            self._run.ground.queue_guidance(spec.rollout, word, ANNOTATOR_AUTHOR)


def orders_to_learn(run: ExperimentRun) -> list[SpokenOrder]:
    """The orders to learn from, all different."""
    wanted = run.recipe.orders
    if not wanted.train:
        return []
    return draw_orders(run.orders, "train", wanted.train * wanted.each, ORDER_SEED)


def sample_rollouts(
    run: ExperimentRun, engine: str, agents: SamplingAgents, begun: BegunWork
) -> dict[str, Any]:
    """Sample, wait for the end; the rollouts with what each was for, in the order they began.

    Raises StageSpoiled where a model sampled that was trained already, or nobody watched it.
    """
    policy = run.recipe.sampler == "policy"
    name = MODEL_ENGINE if policy else engine
    if policy:
        experiment_run.activate_policy(
            run, BASE_MODEL
        )  # an arm that was measured before may be active
    found: dict[str, str] = {}
    for worlds in run.recipe.worlds:
        model, sandbox = run.recipe.model, run.recipe.sandbox
        task = experiment_tasks.write_world_task(run.tasks, worlds, "train", model, sandbox)
        if worlds.train:
            ids = begun.get(
                worlds.name, partial(run.ground.begin_rollouts, task, name, 0, worlds.train)
            )
            found |= dict.fromkeys(ids, worlds.name)
    found |= _order_rollouts(run, engine, agents, begun)
    watch = policy and engine == GUIDED_ENGINE
    look = AnnotatorWatch(run, found, agents.solutions, begun).look if watch else None
    ended = run.ground.wait(found, run.seconds, look)
    experiment_run.check_sampled_policy(ended, "")
    return {"rollouts": found, "states": {one.id: one.state for one in ended}}


def _order_rollouts(
    run: ExperimentRun, engine: str, agents: SamplingAgents, begun: BegunWork
) -> dict[str, str]:
    """Rollouts with orders; alone, nobody gives any."""
    found: dict[str, str] = {}
    settings = {**run.order_settings, "steps": run.recipe.orders.each + SPARE_STEPS}
    some = agents.orders
    for task, chunk in measure_stage.write_tasks_for_orders(
        run.tasks, run.orders, "train", some, ORDER_SEED, settings
    ):
        count = len(chunk) // run.recipe.orders.each
        agents.assign_orders(task.parent.name, chunk, count)
        make = partial(run.ground.begin_rollouts, task, engine, ORDER_SEED, count)
        found |= dict.fromkeys(begun.get(task.parent.name, make), "orders")
    return found
