"""The stage that samples the training data: rollouts of all kinds of worlds, and orders.

It samples once with the annotator (`guided`) and once without; both see the same worlds. The
scripted expert samples through its endpoint, or the model itself does, as the recipe says; with a
model, the annotator reads what is recorded. The scripted agent always plays rollouts with orders.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from houston_daemon.experiments import experiment_run, experiment_tasks, measure_stage
from houston_daemon.experiments.experiment_home import StageInvalid
from houston_daemon.experiments.experiment_run import (
    GUIDED_ENGINE,
    MODEL_ENGINE,
    ExperimentRun,
    StageProgress,
)
from houston_daemon.experiments.experiment_tasks import WorldSolutions
from houston_daemon.experiments.order_vocabulary import OrderMessage, draw_orders
from houston_daemon.experiments.scripted_agents import (
    ANNOTATOR_AUTHOR,
    LOOK_COMMANDS,
    ORDERS_BETWEEN_PAUSES,
    ImperfectExpert,
    ObedientAgent,
    OrderingAnnotator,
    SimulatedAnnotator,
    share_orders,
)
from houston_daemon.experiments.scripted_endpoint import (
    ChatHistory,
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

    begun: of the stage; keeps by rollout the last step that was looked at. Raises StageInvalid
    where one of a stage that goes on ended unwatched.
    """

    def __init__(
        self,
        run: ExperimentRun,
        ids: Iterable[str],
        solutions: WorldSolutions,
        begun_work: StageProgress,
    ) -> None:
        self._run = run
        self._ids = set(ids)
        self._solutions = solutions
        self._begun = begun_work
        self._looked: dict[str, int] = begun_work.get(LOOKED_KEY, dict)
        if begun_work.is_resumed:
            self._refuse_unwatched()

    def look(self) -> None:
        """Look at every running rollout that has a new step, and speak where it drifts."""
        before = dict(self._looked)
        for row in self._run.experiment_home.read(rollout_queries.list_rollouts("", "running")):
            seen_steps = before.get(row.id, 0)
            if row.id in self._ids and row.steps > seen_steps:
                self._look_at(row, seen_steps)
                self._looked[row.id] = row.steps
        if self._looked != before:
            self._begun.put(LOOKED_KEY, self._looked)

    def _refuse_unwatched(self) -> None:
        """After the last step nobody could be heard; any other may have needed a word."""
        listed = self._run.experiment_home.read(rollout_queries.list_rollouts())
        watched = [rollout for rollout in listed if rollout.id in self._ids]
        unwatched = [
            rollout
            for rollout in watched
            if rollout.state in ENDED_STATES and rollout.steps > self._looked.get(rollout.id, 0) + 1
        ]
        if unwatched:
            reason = "it ran to its end while nobody watched"
            raise StageInvalid(len(unwatched), len(watched), unwatched[0].id, reason)

    def _look_at(self, row: rollout_queries.RolloutRow, before: int) -> None:
        """Judge every step after `before` as it was when it was the newest; speak once at most."""
        experiment_home = self._run.experiment_home
        steps = experiment_home.steps(row.id)
        spec = experiment_home.read(rollout_queries.read_rollout_spec(row))
        annotator = SimulatedAnnotator(
            self._run.recipe.annotator, self._solutions.solution_of(row.id, spec)
        )
        spoken = len(experiment_home.guidance(row.id))
        messages = [
            annotator.next_message(
                actions_of_steps(steps[:n]), step_json.observation_as_seen(steps[n - 1]), spoken
            )
            for n in range(before + 1, len(steps) + 1)
        ]
        if message := next(filter(None, messages), ""):
            try:
                experiment_home.queue_guidance(row.id, message, ANNOTATOR_AUTHOR)
            except HoustonError:  # where it ended meanwhile, nobody would hear it
                if experiment_home.read(rollout_queries.find_rollout(row.id)).state == "running":
                    raise


def actions_of_steps(steps: Iterable[StepRecord]) -> tuple[str, ...]:
    """What each step did: the command of an `act`, else the name of its first tool."""
    return tuple(_action_of_step(step) for step in steps)


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
WAITING_PAUSES = (1, 2)
"""Quiet steps between orders to an agent that waits for them, in turn."""


class SamplingAgents:
    """What the scripted endpoint plays: orders where a conversation heard one, worlds elsewhere."""

    def __init__(self, run: ExperimentRun, engine: str, solutions: WorldSolutions) -> None:
        self._run = run
        self._guided = engine == GUIDED_ENGINE
        self._specs = ScriptedSpecs(run.experiment_home)
        self.solutions = solutions
        self._expert = ImperfectExpert(run.recipe.expert, EXPERT_SEED, self._world_solution)
        self.orders = orders_to_learn(run)
        steps, waits = _order_steps(run), run.recipe.orders.agent == "waits"
        agent = ObedientAgent(self.orders, run.orders.train, steps, self._rollout_key, waits=waits)
        self._shares: dict[str, Sequence[OrderMessage]] = {}
        pauses = WAITING_PAUSES if waits else (1,)
        self._ordering = OrderingAnnotator(agent, run.experiment_home, self._orders, pauses=pauses)

    def assign_orders(self, project: str, orders: Sequence[OrderMessage], count: int) -> None:
        """Share orders out among the rollouts of a task, before they start; alone, none hears any.

        count: rollouts; they are known by their seeds, from `ORDER_SEED` on.
        """
        if self._guided:
            for at, share in enumerate(share_orders(orders, count)):
                self._shares[f"{project}:{ORDER_SEED + at}"] = share

    def __call__(self, chat: ChatHistory) -> ScriptedTurn:
        """One step of whichever agent it is."""
        if "act" not in chat.tools:
            return self._ordering(chat)
        if self._guided:
            self._annotate(chat)
        return self._expert(chat)

    def _rollout_key(self, chat: ChatHistory) -> str:
        """Task and seed of a conversation's rollout: the same in another run."""
        spec = self._specs.spec_of(chat)
        return f"{spec.task.name}:{spec.seed}"

    def _orders(self, chat: ChatHistory) -> Sequence[OrderMessage]:
        return self._shares.get(self._rollout_key(chat), ())

    def _world_solution(self, chat: ChatHistory) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What solves a conversation's world, and looks that it knows."""
        spec = self._specs.spec_of(chat)
        return self.solutions.solution_of(spec.rollout, spec), LOOK_COMMANDS[
            parse_task_record(spec.task).environment
        ]

    def _annotate(self, chat: ChatHistory) -> None:
        """Speak while the step is sampled: it is heard at its end."""
        spec = self._specs.spec_of(chat)
        annotator = SimulatedAnnotator(
            self._run.recipe.annotator, self.solutions.solution_of(spec.rollout, spec)
        )
        if message := annotator.next_message(
            chat.actions, chat.observation, len(chat.all_guidance)
        ):
            self._run.experiment_home.queue_guidance(spec.rollout, message, ANNOTATOR_AUTHOR)


def _order_steps(run: ExperimentRun) -> int:
    """Steps of a rollout with orders: who waits for them waits longer."""
    orders = run.recipe.orders
    waiting = sum(WAITING_PAUSES) * orders.each // (ORDERS_BETWEEN_PAUSES * len(WAITING_PAUSES))
    return orders.each + SPARE_STEPS + (waiting if orders.agent == "waits" else 0)


def orders_to_learn(run: ExperimentRun) -> list[OrderMessage]:
    """The orders to learn from, all different."""
    recipe = run.recipe.orders
    if not recipe.train:
        return []
    return draw_orders(run.orders, "train", recipe.train * recipe.each, ORDER_SEED)


def sample_rollouts(
    run: ExperimentRun, engine: str, agents: SamplingAgents, begun_work: StageProgress
) -> dict[str, Any]:
    """Sample, wait for the end; the rollouts with what each was for, in the order they began.

    Raises StageInvalid where a model sampled that was trained already, or nobody watched it.
    """
    policy = run.recipe.sampler == "policy"
    name = MODEL_ENGINE if policy else engine
    if policy:
        experiment_run.activate_policy(run, BASE_MODEL)  # an arm that was measured may be active
    rollouts: dict[str, str] = {}
    for worlds in run.recipe.worlds:
        model, sandbox = run.recipe.model, run.recipe.sandbox
        task = experiment_tasks.write_world_task(run.tasks, worlds, "train", model, sandbox)
        if worlds.train:
            ids = begun_work.get(
                worlds.name,
                partial(run.experiment_home.begin_rollouts, task, name, 0, worlds.train),
            )
            rollouts |= dict.fromkeys(ids, worlds.name)
    rollouts |= _order_rollouts(run, engine, agents, begun_work)
    watch = policy and engine == GUIDED_ENGINE
    look = AnnotatorWatch(run, rollouts, agents.solutions, begun_work).look if watch else None
    ended = run.experiment_home.wait(rollouts, run.seconds, look)
    experiment_run.check_sampled_policy(ended, "")
    return {"rollouts": rollouts, "states": {row.id: row.state for row in ended}}


def _order_rollouts(
    run: ExperimentRun, engine: str, agents: SamplingAgents, begun_work: StageProgress
) -> dict[str, str]:
    """Rollouts with orders; alone, nobody gives any."""
    rollouts: dict[str, str] = {}
    settings = {**run.recipe.order_settings, "steps": _order_steps(run)}
    for task, chunk in measure_stage.write_tasks_for_orders(
        run.tasks, run.orders, "train", agents.orders, ORDER_SEED, settings
    ):
        count = len(chunk) // run.recipe.orders.each
        agents.assign_orders(task.parent.name, chunk, count)
        make = partial(run.experiment_home.begin_rollouts, task, engine, ORDER_SEED, count)
        rollouts |= dict.fromkeys(begun_work.get(task.parent.name, make), "orders")
    return rollouts
