"""One evaluation: slot, snapshot, format check, the evaluator in a sandbox of its own, its answer.

The evaluator runs in the task folder, which is read-only like the workspace (`$WORKSPACE`); it
executes what the agent wrote, so its output is checked and its stderr never reaches the agent: it
may have read the solutions. Only a score uses up a submission; what the evaluator did wrong does
not.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Standing, Stop
from houston_daemon.environments.workstation.evaluation import links
from houston_daemon.environments.workstation.evaluation.observations import Scored
from houston_daemon.environments.workstation.evaluation.scoring import Malformed, read_score
from houston_daemon.environments.workstation.evaluation.slots import Slots
from houston_daemon.hosts.protocol import Finished, Host
from houston_shared.config_hosts import LOCAL
from houston_shared.faults import point
from houston_shared.safe_text import safe
from houston_shared.task import Task

_IN_FOLDER = 'cd -- "$1" && exec /bin/bash -c "$2"'
_MISSING = (
    'cd -- "$WORKSPACE" && here=$(pwd -P) && for f in "$@"; do'
    ' case "$(realpath -e -- "$f" 2>/dev/null)" in "$here"|"$here"/*) ;;'
    ' *) printf "%s\\0" "$f" ;; esac; done'
)
"""A link to what everybody sees is no work of the agent's."""
_NAMED = 10
_OUTPUT = 1_000_000
_DETAIL = 2_000
_INTERRUPT_LOOK = 0.2


@dataclass(slots=True)
class Attempt:
    """One evaluation under way."""

    standing: Standing
    interrupted: asyncio.Event
    seconds: float
    """Most that all its parts may take."""
    snapshot: str
    """What is scored."""
    seconds_used: float = 0.0


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
        if self._host.name == LOCAL and not self._folder.is_dir():
            return Failed(error="The task's folder, where its evaluator lies, is not there now.")
        seconds = self._seconds(standing)
        if seconds <= 0:
            return Failed(error="The time that evaluations may take is used.")
        async with self._slots.slot(stop.event.is_set) as free:
            if not free:
                return self._failed(
                    "The waiting for an evaluation slot ended because a person spoke.", standing
                )
            snapshot = await self._mark()
            async with _interruption(stop) as interrupted:
                point("worker.evaluation.before")
                attempt = Attempt(standing, interrupted, seconds, snapshot)
                refused = await self._checked(attempt)
                done = refused or await self._scored(attempt)
        point("worker.evaluation.after")
        return done

    def _seconds(self, standing: Standing) -> float:
        """How long this evaluation may take."""
        each, all_of_them = self._task.evaluate.seconds, self._task.budget.evaluation_seconds
        left = all_of_them - standing.evaluation_seconds if all_of_them else each
        return min(each, left)

    async def _checked(self, attempt: "Attempt") -> Scored | None:
        """What is wrong with the form of the work; None when it can be scored."""
        evaluate = self._task.evaluate
        if led := await self._led_astray(attempt):
            return led
        if evaluate.required:
            done = await self._spawn(attempt, _MISSING, *evaluate.required)
            missing = done.stdout.decode(errors="replace").split("\0")[:-1]
            if done.exit_code is None:
                return self._ended(done, attempt)
            if missing:
                names = ", ".join(missing[:_NAMED])
                more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
                error = (
                    f"The workspace lacks {names}{more}, which must be there to be scored; links"
                    " that lead out of it do not count."
                )
                return self._failed(error, attempt.standing, attempt.seconds_used, "", "format")
        if not evaluate.format:
            return None
        done = await self._spawn(attempt, _IN_FOLDER, str(self._folder), evaluate.format)
        if done.exit_code is None:
            return self._ended(done, attempt)
        if done.exit_code == 0:
            return None
        said = str(safe(done.stdout[:_DETAIL])).strip() or "it does not say what"
        error = f"The format of the work is wrong: {said}"
        detail = str(safe(done.stderr[-_DETAIL:]))
        return self._failed(error, attempt.standing, attempt.seconds_used, detail, "format")

    async def _led_astray(self, attempt: "Attempt") -> Scored | None:
        """What is wrong with links of the workspace; None where they lead nowhere special."""
        words = (str(self._folder), *self._seen())
        done = await self._run(attempt, links.SECONDS, links.FIND, *words)
        if done.exit_code is None and attempt.interrupted.is_set():
            return self._ended(done, attempt)
        if done.exit_code != 0:
            detail = str(safe(done.stderr[-_DETAIL:]))
            error = "The links of the workspace could not be looked at, so nothing was scored."
            return self._failed(error, attempt.standing, 0.0, detail)
        error = links.said(done.stdout)
        return self._failed(error, attempt.standing, 0.0, "", "format") if error else None

    def _seen(self) -> list[str]:
        """Parts of the task's folder that are mapped for the agent, too: an environment has links
        to its own Python, and so have those that are made of it."""
        named = filter(None, (self._task.activate, *self._task.mapped.read))
        paths = (self._folder / one for one in named)
        return [str(path) for path in paths if self._folder in path.parents]

    async def _spawn(self, attempt: "Attempt", script: str, *words: str) -> Finished:
        """Run a script within the attempt's time."""
        left = max(0.1, attempt.seconds - attempt.seconds_used)
        done = await self._run(attempt, left, script, *words)
        attempt.seconds_used += done.seconds
        return done

    async def _run(self, attempt: "Attempt", seconds: float, script: str, *words: str) -> Finished:
        """Run a script shut in with task folder and workspace."""
        return await self._host.spawn(
            ["/bin/bash", "-c", script, "evaluate", *words],
            seconds=seconds,
            writable=False,
            extra_read=[self._folder],
            stop=attempt.interrupted,
            output_limit=_OUTPUT,
        )

    def _ended(self, done: Finished, attempt: "Attempt") -> Scored:
        """The observation of an evaluation that was cut short."""
        why = f"took longer than {attempt.seconds:g} s and was ended"
        why = "was interrupted by a person" if attempt.interrupted.is_set() else why
        detail = str(safe(done.stderr[-_DETAIL:]))
        error = f"The evaluator {why}."
        return self._failed(error, attempt.standing, attempt.seconds_used, detail)

    async def _scored(self, attempt: "Attempt") -> Scored:
        evaluate, standing = self._task.evaluate, attempt.standing
        done = await self._spawn(attempt, _IN_FOLDER, str(self._folder), evaluate.command)
        if done.exit_code is None:
            return self._ended(done, attempt)
        seconds, detail = attempt.seconds_used, str(safe(done.stderr[-_DETAIL:]))
        if done.exit_code:
            crash = f"The evaluator failed with exit code {done.exit_code} and gave no score."
            return self._failed(crash, standing, seconds, detail)
        try:
            score, metrics = read_score(done.stdout, done.cut, evaluate)
        except Malformed as problem:
            error = f"The evaluator gave no valid score: {problem}."
            detail = f"{detail}\nIt printed: {safe(done.stdout[:_DETAIL])}".strip()
            return self._failed(error, standing, seconds, detail, "format")
        return Scored(
            overall_score=score,
            state="scored",
            counted=True,
            seconds=round(seconds, 3),
            metrics=metrics,
            left=self._task.budget.evaluations - standing.evaluations - 1,
            detail=detail,
            snapshot=attempt.snapshot,
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
