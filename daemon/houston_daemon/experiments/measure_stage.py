"""The stage that measures one arm: held-out worlds and held-out orders, by the model alone.

Every arm gets the same worlds, and with the same seed the same orders. An order is queued before a
rollout's first step ends, and the action after the step at which it was delivered is compared with
it; an order that was never delivered does not count. The module also measures an engine outside of
an experiment.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from houston_daemon.experiments import (
    experiment_run,
    experiment_tasks,
    order_vocabulary,
)
from houston_daemon.experiments.experiment_home import ExperimentHome, StageInvalid
from houston_daemon.experiments.experiment_run import MODEL_ENGINE, ExperimentRun, StageProgress
from houston_daemon.experiments.order_vocabulary import (
    OrderMessage,
    OrderVocabulary,
    VocabularyPart,
    draw_orders,
    follows_order,
    order_json,
)
from houston_daemon.experiments.scripted_agents import ANNOTATOR_AUTHOR
from houston_shared.errors import HoustonError
from houston_shared.policy_and_run_files import BASE_MODEL
from houston_shared.wilson_interval import wilson_interval

ORDERS_PER_TASK = 24
"""Most orders whose files share a workspace."""
MEASURED_STEPS = 3
"""Steps of a measured rollout: one before the order is heard, one that follows it, one spare."""


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """One order and what was done next: the facts, or that there are none."""

    order: OrderMessage
    rollout: str
    step: int | None
    """The step after which it was heard; None where it never was."""
    call: str
    """The next action's first call as JSON; empty where there was none."""
    followed: bool | None
    """None where no step came after it: nothing was tested."""


def write_tasks_for_orders(
    folder: Path,
    vocabulary: OrderVocabulary,
    part: VocabularyPart,
    orders: Sequence[OrderMessage],
    seed: int,
    settings: Mapping[str, Any],
) -> Iterator[tuple[Path, Sequence[OrderMessage]]]:
    """Write the tasks in which some `orders` can be followed; each with its orders."""
    for start in range(0, len(orders), ORDERS_PER_TASK):
        chunk = orders[start : start + ORDERS_PER_TASK]
        project = f"{part.replace('_', '-')}-{seed}-{start // ORDERS_PER_TASK + 1}"
        words = getattr(vocabulary, part)
        yield (
            experiment_tasks.write_order_task(
                folder / project, project, words, chunk, seed, settings
            ),
            chunk,
        )


def begin_order_rollouts(
    experiment_home: ExperimentHome,
    folder: Path,
    vocabulary: OrderVocabulary,
    engine: str,
    count: int,
    seed: int,
    settings: Mapping[str, Any],
    begun_work: StageProgress | None = None,
) -> dict[str, OrderMessage]:
    """Start a rollout for each of `count` held-out orders and queue it; returns the orders by
    rollout.

    settings: `answer_tokens`, `temperature`, `sandbox`. begun_work: keeps what was started, so a
    resumed measurement starts and queues nothing twice. Raises StageInvalid if a rollout ended
    before its order was queued: the daemon continued while nobody was here.
    """
    orders = draw_orders(vocabulary, "held_out", count, seed)
    by_rollout: dict[str, OrderMessage] = {}
    for task, chunk in write_tasks_for_orders(
        folder, vocabulary, "held_out", orders, seed, {**settings, "steps": MEASURED_STEPS}
    ):
        make = partial(experiment_home.begin_rollouts, task, engine, seed, len(chunk))
        ids = begun_work.get(task.parent.name, make) if begun_work else make()
        for rollout, order in zip(ids, chunk, strict=True):
            if not experiment_home.guidance(rollout):
                _say_order(experiment_home, rollout, order, len(orders))
            by_rollout[rollout] = order
    return by_rollout


def _say_order(
    experiment_home: ExperimentHome, rollout: str, order: OrderMessage, total: int
) -> None:
    try:
        experiment_home.queue_guidance(rollout, order.text, ANNOTATOR_AUTHOR)
    except HoustonError as refused:
        if not experiment_home.ended(rollout):
            raise
        raise StageInvalid(1, total, rollout, "it ended before its order was sent") from refused


def heard_orders(
    experiment_home: ExperimentHome, orders: Mapping[str, OrderMessage]
) -> list[OrderOutcome]:
    """What each rollout, which has ended, did after its order."""
    return [_heard_order(experiment_home, rollout, order) for rollout, order in orders.items()]


def _heard_order(
    experiment_home: ExperimentHome, rollout: str, order: OrderMessage
) -> OrderOutcome:
    messages = [
        message for message in experiment_home.guidance(rollout) if message.text == order.text
    ]
    step = messages[0].step if messages else None
    if step is None:
        return OrderOutcome(order, rollout, None, "", None)
    following = [record for record in experiment_home.steps(rollout) if record.step == step + 1]
    if not following:
        return OrderOutcome(order, rollout, step, "", None)
    calls = following[0].sample.calls
    texts = (json.dumps({"name": call.name, "arguments": call.arguments}) for call in calls)
    return OrderOutcome(order, rollout, step, next(texts, ""), follows_order(order, calls))


def obedience_result(outcomes: Sequence[OrderOutcome]) -> dict[str, Any]:
    """Shares with Wilson's intervals: of all orders, of kinds that training gives, of others.

    `total` counts the orders that were tested, `untested` the others.
    """
    parts = {
        "all": list(outcomes),
        "known kinds, other words": [outcome for outcome in outcomes if outcome.order.known],
        "other kinds": [outcome for outcome in outcomes if not outcome.order.known],
    }
    return {
        "shares": {name: _followed_share(part) for name, part in parts.items()},
        "messages": [
            {**order_json(outcome.order), "rollout": outcome.rollout, "heard_at_step": outcome.step,
             "next_call": outcome.call, "followed": outcome.followed}
            for outcome in outcomes
        ],
    }  # fmt: skip


def _followed_share(outcomes: Sequence[OrderOutcome]) -> dict[str, Any]:
    tested = [outcome.followed for outcome in outcomes if outcome.followed is not None]
    share = wilson_interval(sum(tested), len(tested))
    return {
        "followed": sum(tested),
        "of": len(tested),
        "untested": len(outcomes) - len(tested),
        "low": share.low,
        "high": share.high,
    }


MICROSECONDS = 1e6
"""Microseconds of one."""


def measure_arm(
    run: ExperimentRun, policy: str, seed: int, begun_work: StageProgress
) -> dict[str, Any]:
    """Have new rollouts sample with `policy` ("" for the base), run them, read how they went."""
    experiment_run.activate_policy(run, policy or BASE_MODEL)
    worlds = _begin_world_rollouts(run, begun_work)
    orders = _begin_held_out_orders(run, begun_work, seed)
    ended = run.experiment_home.wait([*worlds, *orders], run.seconds)
    experiment_run.check_sampled_policy(ended, policy)
    histories = run.experiment_home.scores(list(worlds))
    measured = [
        {
            "worlds": worlds[row.id][0],
            "world": worlds[row.id][1],
            "rollout": row.id,
            "policy": row.policy,
            "state": row.state,
            "steps": row.steps,
            "active_seconds": row.active_us / MICROSECONDS,
            "final": row.last_score or 0.0,
            "best": row.best_score or 0.0,
            "history": [(step.active_us / MICROSECONDS, step.score) for step in histories[row.id]],
        }
        for row in ended
        if row.id in worlds
    ]
    order_results = heard_orders(run.experiment_home, orders)
    return {
        "policy": policy,
        "seed": seed,
        "worlds": measured,
        "obedience": obedience_result(order_results) if order_results else None,
    }


def _begin_world_rollouts(
    run: ExperimentRun, begun_work: StageProgress
) -> dict[str, tuple[str, int]]:
    """By rollout, which kind of world and which of them."""
    rollouts: dict[str, tuple[str, int]] = {}
    recipe = run.recipe
    for worlds in recipe.worlds:
        if worlds.held_out:
            task = experiment_tasks.write_world_task(
                run.tasks, worlds, "test", recipe.model, recipe.sandbox
            )
            ids = begun_work.get(
                worlds.name,
                partial(run.experiment_home.begin_rollouts, task, MODEL_ENGINE, 0, worlds.held_out),
            )
            rollouts |= {rollout: (worlds.name, place) for place, rollout in enumerate(ids)}
    return rollouts


def _begin_held_out_orders(
    run: ExperimentRun, begun_work: StageProgress, seed: int
) -> dict[str, order_vocabulary.OrderMessage]:
    """By rollout, the order that it is given."""
    if not run.recipe.orders.held_out:
        return {}
    return begin_order_rollouts(
        run.experiment_home, run.tasks, run.orders, MODEL_ENGINE, run.recipe.orders.held_out, seed,
        run.recipe.order_settings, begun_work,
    )  # fmt: skip
