"""A rollout before a judge: every step of its own, in windows, several asked about at once.

Where the observation of a step is an error the rule stands: the judge's keep becomes a mask with
the rule's reason, which says so: `would_keep` finds it again. An error that comes later is for
`verdict_order`. Nothing is stored here, and people's verdicts are neither read nor touched.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from houston_daemon.supervision import ruling
from houston_daemon.supervision.judge.answers import Judged
from houston_daemon.supervision.judge.asking import Asking, Decided, Desk
from houston_daemon.supervision.judge.template import Template
from houston_daemon.supervision.judge.windows import Planner, Window
from houston_daemon.supervision.trace import Trace
from houston_shared import verdict_order

T = TypeVar("T")
_OVERRULED = "; the judge would keep it"
"""How the reason of a keep ends that became a mask."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a judge says of one rollout."""

    steps: Mapping[int, Judged]
    undecided: Mapping[int, str]
    """Steps without a verdict, and why."""
    overruled: int
    """Keeps that became masks because the observation is an error."""
    windows: int
    shortened: int
    """Steps that the judge did not see whole."""


def windows(trace: Trace, template: Template, desk: Desk) -> list[Window]:
    """The windows of a rollout. Raises ConfigurationError where they are too small."""
    steps = ruling.own_steps(trace)
    if not steps:
        return []
    return list(Planner(trace, template, desk.tokens, desk.room).windows(steps))


async def judge(
    trace: Trace,
    asked: Sequence[Window],
    asking: Asking,
    turn: asyncio.Semaphore,
    errors: Mapping[int, str],
    done: Callable[[Decided], None],
) -> Verdicts:
    """Ask about all windows, as many at once as `turn` lets through.

    errors: steps whose observation is an error, with the rule's reason. done: told of each window.
    Raises EngineUnavailable where the engine is gone; answers until then are kept in the cache.
    """

    async def one(window: Window) -> Decided:
        async with turn:
            decided = await asking.decide(window)
        done(decided)
        return decided

    found = await all_of([one(window) for window in asked])
    steps = {step: judged for decided in found for step, judged in decided.steps.items()}
    kept = [step for step in errors if step in steps and steps[step].verdict == "keep"]
    steps |= {step: Judged("mask", f"{errors[step]}{_OVERRULED}") for step in kept}
    undecided = {step: decided.problem for decided in found for step in decided.undecided}
    return Verdicts(
        steps=dict(sorted(steps.items())),
        undecided=dict(sorted(undecided.items())),
        overruled=len(kept),
        windows=len(asked),
        shortened=sum(window.shortened for window in asked),
    )


def would_keep(reason: str) -> bool:
    """Whether a judge's mask with this reason is its own keep, overruled by an error."""
    return reason.endswith(_OVERRULED) and verdict_order.names_error(reason)


async def all_of(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, or the first failure once nothing runs any more."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
