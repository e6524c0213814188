"""How often an agent does next what a person just said: real rollouts, one message each.

A rollout of the held-out vocabulary is started, one order is said to it before its first step ends,
and the action after the step at which it was delivered is compared with the order. An order that
was never heard, or after which there was no step, was not tested and counts nowhere. Which policy
the engine serves is the caller's business.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from houston_daemon.training.experiment import order_tasks, statistics
from houston_daemon.training.experiment.annotator import AUTHOR
from houston_daemon.training.experiment.orders import Order, Orders, Part, as_json, draw, follows
from houston_daemon.training.experiment.own_home import OwnHome, Spoiled
from houston_daemon.training.experiment.stages import Begun
from houston_shared.errors import HoustonError

A_TASK = 24
"""Most orders whose files share a workspace."""
STEPS = 3
"""Steps of a measured rollout: one before the order is heard, one that follows it, one spare."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One order and what was done next: the facts, or that there are none."""

    order: Order
    rollout: str
    step: int | None
    """The step after which it was heard; None where it never was."""
    call: str
    """The next action's first call as JSON; empty where there was none."""
    followed: bool | None
    """None where no step came after it: nothing was tested."""


def tasks(
    folder: Path,
    orders: Orders,
    part: Part,
    some: Sequence[Order],
    seed: int,
    settings: Mapping[str, Any],
) -> Iterator[tuple[Path, Sequence[Order]]]:
    """Write the tasks in which `some` orders can be followed; each with its orders."""
    for start in range(0, len(some), A_TASK):
        chunk = some[start : start + A_TASK]
        project = f"{part.replace('_', '-')}-{seed}-{start // A_TASK + 1}"
        words = getattr(orders, part)
        yield order_tasks.write(folder / project, project, words, chunk, seed, settings), chunk


def begin(
    ground: OwnHome,
    folder: Path,
    orders: Orders,
    engine: str,
    count: int,
    seed: int,
    settings: Mapping[str, Any],
    begun: Begun | None = None,
) -> dict[str, Order]:
    """Start a rollout for each of `count` held-out orders and say it; the orders by rollout.

    settings: `answer_tokens`, `temperature`, `sandbox`. begun: keeps what was started, so that a
    measurement that goes on starts and says nothing twice. Raises Spoiled where a rollout ended
    before anything was said to it: the daemon went on while nobody was here.
    """
    some = draw(orders, "held_out", count, seed)
    found: dict[str, Order] = {}
    for task, chunk in tasks(folder, orders, "held_out", some, seed, {**settings, "steps": STEPS}):
        make = partial(ground.begin, task, engine, seed, len(chunk))
        ids = begun.get(task.parent.name, make) if begun else make()
        for rollout, order in zip(ids, chunk, strict=True):
            if not ground.guidance(rollout):
                _say(ground, rollout, order, len(some))
            found[rollout] = order
    return found


def _say(ground: OwnHome, rollout: str, order: Order, of: int) -> None:
    try:
        ground.say(rollout, order.text, AUTHOR)
    except HoustonError as refused:
        if not ground.ended(rollout):
            raise
        raise Spoiled(1, of, rollout, "it ended before its order was said") from refused


def heard(ground: OwnHome, begun: Mapping[str, Order]) -> list[Heard]:
    """What each rollout, which has ended, did after its order."""
    return [_heard(ground, rollout, order) for rollout, order in begun.items()]


def _heard(ground: OwnHome, rollout: str, order: Order) -> Heard:
    said = [one for one in ground.guidance(rollout) if one.text == order.text]
    step = said[0].step if said else None
    if step is None:
        return Heard(order, rollout, None, "", None)
    after = [one for one in ground.steps(rollout) if one.step == step + 1]
    if not after:
        return Heard(order, rollout, step, "", None)
    calls = after[0].sample.calls
    first = json.dumps({"name": calls[0].name, "arguments": calls[0].arguments}) if calls else ""
    return Heard(order, rollout, step, first, follows(order, calls))


def result(found: Sequence[Heard]) -> dict[str, Any]:
    """Shares with Wilson's intervals: of all orders, of kinds that training gives, of others.

    `of` counts the orders that were tested, `untested` the others.
    """
    parts = {
        "all": list(found),
        "known kinds, other words": [one for one in found if one.order.known],
        "other kinds": [one for one in found if not one.order.known],
    }
    return {
        "shares": {name: _share(part) for name, part in parts.items()},
        "messages": [
            {**as_json(one.order), "rollout": one.rollout, "heard_at_step": one.step,
             "next_call": one.call, "followed": one.followed}
            for one in found
        ],
    }  # fmt: skip


def _share(some: Sequence[Heard]) -> dict[str, Any]:
    tested = [one.followed for one in some if one.followed is not None]
    share = statistics.wilson(sum(tested), len(tested))
    return {
        "followed": sum(tested),
        "of": len(tested),
        "untested": len(some) - len(tested),
        "low": share.low,
        "high": share.high,
    }
