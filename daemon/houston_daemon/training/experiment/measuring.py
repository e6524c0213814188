"""The stage that measures one arm: held-out worlds and held-out orders, by the model alone.

No annotator speaks in worlds, and each order is one message. Every arm gets the same worlds, and
with the same seed the same orders.
"""

from functools import partial
from typing import Any

from houston_daemon.training.experiment import obedience, orders, serving, world_tasks
from houston_daemon.training.experiment.run import MODEL, Run
from houston_daemon.training.experiment.stages import Begun
from houston_shared.policy_names import BASE

SECONDS = 1e6
"""Microseconds of one."""


def measure(run: Run, policy: str, seed: int, begun: Begun) -> dict[str, Any]:
    """Have new rollouts sample with `policy` ("" for the base), run them, read how they went."""
    serving.activate(run, policy or BASE)
    worlds = _begin_worlds(run, begun)
    told = _begin_orders(run, begun, seed)
    ended = run.ground.wait([*worlds, *told], run.seconds)
    serving.check(ended, policy)
    histories = run.ground.scores(list(worlds))
    measured = [
        {
            "worlds": worlds[one.id][0],
            "world": worlds[one.id][1],
            "rollout": one.id,
            "policy": one.policy,
            "state": one.state,
            "steps": one.steps,
            "active_seconds": one.active_us / SECONDS,
            "final": one.last_score or 0.0,
            "best": one.best_score or 0.0,
            "history": [(each.active_us / SECONDS, each.score) for each in histories[one.id]],
        }
        for one in ended
        if one.id in worlds
    ]
    heard = obedience.heard(run.ground, told)
    return {
        "policy": policy,
        "seed": seed,
        "worlds": measured,
        "obedience": obedience.result(heard) if heard else None,
    }


def _begin_worlds(run: Run, begun: Begun) -> dict[str, tuple[str, int]]:
    """By rollout, which kind of world and which of them."""
    found: dict[str, tuple[str, int]] = {}
    made = run.recipe
    for worlds in made.worlds:
        if worlds.held_out:
            task = world_tasks.write(run.tasks, worlds, "test", made.model, made.sandbox)
            ids = begun.get(worlds.name, partial(run.ground.begin, task, MODEL, 0, worlds.held_out))
            found |= {rollout: (worlds.name, place) for place, rollout in enumerate(ids)}
    return found


def _begin_orders(run: Run, begun: Begun, seed: int) -> dict[str, orders.Order]:
    """By rollout, the order that it is given."""
    if not run.recipe.orders.held_out:
        return {}
    settings = {
        "answer_tokens": run.recipe.model.answer_tokens,
        "temperature": run.recipe.model.temperature,
        "sandbox": run.recipe.sandbox,
    }
    count = run.recipe.orders.held_out
    return obedience.begin(run.ground, run.tasks, run.orders, MODEL, count, seed, settings, begun)
