"""One evaluation: slot, snapshot, the task's evaluator in a sandbox of its own, its answer checked.

The evaluator runs in the task folder, which is read-only like the workspace (`$WORKSPACE`); it
executes what the agent wrote, so its output is checked and its stderr never reaches the agent: it
may have read the solutions. Only a score uses up a submission; what the evaluator did wrong does
not.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Standing, Stop
from houston_daemon.environments.workstation.evaluation.observations import Scored
from houston_daemon.environments.workstation.evaluation.slots import Slots
from houston_daemon.hosts.protocol import Finished, Host
from houston_shared.faults import point
from houston_shared.safe_text import safe
from houston_shared.task import Task

_IN_FOLDER = 'cd -- "$1" && exec /bin/bash -c "$2"'
_OUTPUT = 1_000_000
_METRICS = 50
_METRIC_TEXT = 500
_DETAIL = 2_000
_INTERRUPT_LOOK = 0.2


class Malformed(Exception):
    """The evaluator's output is not what a task file promises; the text says how."""


class Evaluation:
    """Evaluations of one rollout."""

    def __init__(
        self,
        host: Host,
        task: Task,
        folder: Path,
        slots: Slots,
        mark: Callable[[], Awaitable[str]],
    ) -> None:
        """mark: takes a snapshot of what is scored, large files too; returns its commit."""
        self._host = host
        self._task = task
        self._folder = folder
        self._slots = slots
        self._mark = mark

    async def run(self, standing: Standing, stop: Stop) -> Observation:
        """Score the workspace as it stands, if a submission is left."""
        limit = self._task.budget.evaluations
        if not self._task.evaluate.command:
            return Failed(error="This task has no evaluator; finish when the work is done.")
        if standing.evaluations >= limit:
            return Failed(error=f"All {limit} submissions are used.")
        async with self._slots.slot(stop.event.is_set) as free:
            if not free:
                return self._failed(
                    "The waiting for an evaluation slot ended because a person spoke.", standing
                )
            snapshot = await self._mark()
            async with _interruption(stop) as interrupted:
                point("worker.evaluation.before")
                done = await self._spawn(interrupted)
        point("worker.evaluation.after")
        return self._observation(done, standing, interrupted.is_set(), snapshot)

    async def _spawn(self, stop: asyncio.Event) -> Finished:
        evaluate = self._task.evaluate
        return await self._host.spawn(
            ["/bin/bash", "-c", _IN_FOLDER, "evaluate", str(self._folder), evaluate.command],
            seconds=evaluate.seconds,
            writable=False,
            extra_read=[self._folder],
            stop=stop,
            output_limit=_OUTPUT,
        )

    def _observation(
        self, done: Finished, standing: Standing, interrupted: bool, snapshot: str
    ) -> Scored:
        detail = str(safe(done.stderr[-_DETAIL:]))
        if done.exit_code is None:
            why = f"took longer than {self._task.evaluate.seconds:g} s and was ended"
            why = "was interrupted by a person" if interrupted else why
            return self._failed(f"The evaluator {why}.", standing, done.seconds, detail)
        if done.exit_code:
            crash = f"The evaluator failed with exit code {done.exit_code} and gave no score."
            return self._failed(crash, standing, done.seconds, detail)
        try:
            score, metrics = read_score(done.stdout, done.cut)
        except Malformed as problem:
            error = f"The evaluator gave no valid score: {problem}."
            return self._failed(error, standing, done.seconds, detail, "format")
        return Scored(
            overall_score=score,
            state="scored",
            counted=True,
            seconds=round(done.seconds, 3),
            metrics=metrics,
            left=self._task.budget.evaluations - standing.evaluations - 1,
            detail=detail,
            snapshot=snapshot,
        )

    def _failed(
        self,
        error: str,
        standing: Standing,
        seconds: float = 0.0,
        detail: str = "",
        state: str = "failed",
    ) -> Scored:
        return Scored(
            success=False,
            error=error,
            overall_score=None,
            state=state,
            counted=False,
            seconds=round(seconds, 3),
            left=self._task.budget.evaluations - standing.evaluations,
            detail=detail,
        )


def read_score(output: bytes, cut: bool = False) -> tuple[float, dict[str, Any]]:
    """The score and the other metrics in an evaluator's output.

    output: one JSON object with `overall_score`, a number from 0 to 100. Numbers, booleans and
    short strings among its other members are metrics. Raises Malformed.
    """
    if cut:
        raise Malformed("its output is longer than 1 MB")
    if not output.strip():
        raise Malformed("it printed nothing")
    try:
        found = json.loads(output, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Malformed("its output is not one JSON object") from None
    if not isinstance(found, dict):
        raise Malformed("its output is not one JSON object")
    score = found.pop("overall_score", None)
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise Malformed("`overall_score` is missing or no number")
    if not (math.isfinite(score) and 0 <= score <= 100):
        raise Malformed("`overall_score` is not between 0 and 100")
    return float(score), dict([_metric(*item) for item in found.items()][:_METRICS])


def _metric(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bool | int | float):
        small = isinstance(value, bool) or abs(value) < 2**53
        return str(safe(name[:60])), value if small else str(value)[:_METRIC_TEXT]
    text = value if isinstance(value, str) else json.dumps(value)
    return str(safe(name[:60])), str(safe(text[:_METRIC_TEXT]))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


@contextlib.asynccontextmanager
async def _interruption(stop: Stop) -> AsyncIterator[asyncio.Event]:
    """An event that is set when a person interrupts; a mere wake lets an evaluation go on."""
    interrupted = asyncio.Event()

    async def watch() -> None:
        await stop.event.wait()
        while stop.reason != "interrupt":  # noqa: ASYNC110 - the event stays set after a wake
            await asyncio.sleep(_INTERRUPT_LOOK)
        interrupted.set()

    watching = asyncio.create_task(watch())
    try:
        yield interrupted
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
