"""One evaluation: slot, snapshot, format check, the evaluator in its own sandbox, its score.

Links that would lead an evaluator to files that only it may read are refused.
"""

import asyncio
import contextlib
import fcntl
import json
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from houston_daemon.environments.environment_protocol import BudgetStatus, Stop, WaitingForSlot
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_daemon.hosts.host_protocol import ProcessResult, RolloutHost
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.faults import point
from houston_shared.safe_text import safe
from houston_shared.task import Task
from houston_shared.task_tables import EvaluationSettings
from houston_shared.times_and_counts import join_first, pluralize


class EvaluationResult(Observation, frozen=True, kw_only=True):
    """What an evaluation gave."""

    kind: ClassVar[str] = "eval"
    bulk: ClassVar[tuple[str, ...]] = ("metrics", "left")
    overall_score: float | None
    """0 to 100."""
    state: str
    """`scored`, `format` (the evaluator's output is wrong), `failed` (crash, time, interrupted)."""
    counted: bool
    """Whether it used up a submission."""
    seconds: float
    metrics: dict[str, Any] = {}
    left: int = 0
    """Submissions left after it."""
    detail: str = ""
    """The evaluator's last words on stderr: for people, never shown to the agent."""
    snapshot: str = ""
    """The workspace as it was scored: a commit of the shadow repository, large files stored."""
    finished: bool = False
    """Whether it ends the rollout; named here so that no metric can say so."""
    evaluator_failed: bool = False
    """Whether the evaluator itself gave no score: it crashed, took too long, or printed none. Not
    where the agent's work has the wrong form, nor where a person interrupted it."""

    def fields(self) -> dict[str, Any]:
        """Metrics stand beside the score; a metric cannot take the name of a field."""
        return {**self.metrics, **Observation.fields(self)}


@render.register
def _(result: EvaluationResult) -> Text:
    submissions_left = f"{pluralize(result.left, 'submission')} left"
    if result.state != "scored":
        return Text(f"Error: {result.error} No submission was used; {submissions_left}.")
    lines = [f"{name}: {value}" for name, value in result.metrics.items()]
    return Text(
        f"overall_score: {result.overall_score:g} of 100 ({submissions_left})", "\n".join(lines)
    )


SECONDS = 600.0
"""Longest look; it is not the evaluator's time."""
MOST = 10
"""Links that are named."""

FIND = (
    'type find xargs realpath head >/dev/null && cd -- "$1" && here=$(pwd -P) || exit 1; seen=();'
    ' for one in "${@:2}"; do seen+=("$(realpath -m -- "$one")"); done;'
    ' own() { local one; for one in "${seen[@]}"; do'
    ' case "$1" in "$one"|"$one"/*) return 1;; esac; done;'
    ' case "$1" in "$here"|"$here"/*|/proc|/proc/*) return 0;; esac; return 1; };'
    ' links() { find "$WORKSPACE" -type l -print0; };'
    ' links | xargs -0r realpath -mz -- | while IFS= read -rd "" to; do'
    ' own "$to" && exit 1; :; done && exit;'
    " links | while IFS= read -rd '' link; do"
    ' own "$(realpath -m -- "$link")" && printf "%s\\0" "${link#"$WORKSPACE"/}"; done'
    f" | head -zn {MOST + 1}"
)
"""Bash: prints such links, each with a NUL behind it, and ends with 0. `$1` is the task's folder,
and the words after it are parts of it that the agent sees, too.

All are resolved by one process; only where that finds something each is asked for by itself."""


def links_found(printed: bytes) -> str:
    """What the agent is told of the links that `FIND` printed; empty where there is none."""
    names = printed.decode(errors="replace").split("\0")[:-1]
    if not names:
        return ""
    more = " and more" if len(names) > MOST else ""
    return (
        f"Links of the workspace lead to the evaluator's own files or into /proc:"
        f" {', '.join(names[:MOST])}{more}. Work with such links is not scored; remove them."
    )


_METRICS = 50
_METRIC_TEXT = 500
_SCALED = EvaluationSettings()


class Malformed(Exception):
    """The evaluator's output is not what a task file promises; the text says how."""


def read_score(
    output: bytes, cut: bool = False, scale: EvaluationSettings = _SCALED
) -> tuple[float, dict[str, Any]]:
    """The score and the other metrics in an evaluator's output.

    output: one JSON object with `overall_score`, a number from 0 to 100, or with `raw_score` where
    `scale` has both ends of a scale. Numbers, booleans and short strings among its other members
    are metrics. Raises Malformed.
    """
    if cut:
        raise Malformed("its output is longer than 1 MB")
    if not output.strip():
        raise Malformed("it printed nothing")
    try:
        members = json.loads(output, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Malformed("its output is not one JSON object") from None
    if not isinstance(members, dict):
        raise Malformed("its output is not one JSON object")
    if scale.baseline is not None and scale.reference is not None:
        members.pop("overall_score", None)
        raw = _number(members, "raw_score")
        score = scaled(raw, scale.baseline, scale.reference)
    else:
        score = _number(members, "overall_score")
        if not 0 <= score <= 100:
            raise Malformed("`overall_score` is not between 0 and 100")
        del members["overall_score"]
    return score, dict([_metric(*item) for item in members.items()][:_METRICS])


def scaled(raw: float, baseline: float, reference: float) -> float:
    """Points for a raw score: 0 at `baseline`, 100 at `reference`, linear and clipped.

    Source: APOLLO, appendix B.4.
    """
    share = (raw / 2 - baseline / 2) / (reference / 2 - baseline / 2)  # halves cannot overflow
    return round(100 * min(1.0, max(0.0, share)), 6)


def _number(members: dict[str, Any], name: str) -> float:
    value = members.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"`{name}` is missing or no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Malformed(
            f"`{name}` is not finite"
            if name == "raw_score"
            else "`overall_score` is not between 0 and 100"
        )
    return number


def _metric(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bool | int | float):
        small = isinstance(value, bool) or abs(value) < 2**53
        return str(safe(name[:60])), value if small else str(value)[:_METRIC_TEXT]
    return str(safe(name[:60])), str(safe(_text(value)[:_METRIC_TEXT]))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except RecursionError:  # writing needs a little more of the stack than reading
        return "[nested too deeply to be shown]"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


# Slots: one lock file for each. A lock is the kernel's (flock), so that it ends with the process
# that holds it, however that ends.
_PAUSES = (0.02, 0.1, 0.3, 0.5)


class Slots:
    """How many evaluations of one task run at once under one host root."""

    def __init__(
        self, root: Path, task: str, count: int, waiting: WaitingForSlot | None = None
    ) -> None:
        folder = root / "evaluation-slots"
        self._files = [folder / f"{task}.{number}" for number in range(1, count + 1)]
        self._waiting = waiting

    @contextlib.asynccontextmanager
    async def slot(self, is_cancelled: Callable[[], bool]) -> AsyncIterator[bool]:
        """Hold a slot inside the block; yields False when `is_cancelled` became true before one was
        free.

        `waiting` is called only while it waits: that time is not active time.
        """
        descriptor = self._take()
        if descriptor is None:
            descriptor = await self._wait(is_cancelled)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    async def _wait(self, is_cancelled: Callable[[], bool]) -> int | None:
        self._tell(True)
        try:
            attempt = 0
            while not is_cancelled():
                descriptor = self._take()
                if descriptor is not None:
                    return descriptor
                await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
            return None
        finally:
            self._tell(False)

    def _tell(self, waiting: bool) -> None:
        if self._waiting is not None:
            self._waiting(waiting)

    def _take(self) -> int | None:
        for path in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return descriptor
        return None


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

    budget_status: BudgetStatus
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
        host: RolloutHost,
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

    async def run(self, budget_status: BudgetStatus, stop: Stop) -> Observation:
        """Score the workspace as it stands, if a submission is left."""
        limit = self._task.budget.evaluations
        if not self._task.evaluate.command:
            return Failed(error="This task has no evaluator; finish when the work is done.")
        if budget_status.evaluations >= limit:
            return Failed(error=f"All {limit} submissions are used.")
        if self._host.name == LOCAL_HOST and not self._folder.is_dir():
            reason = "The task's folder, where its evaluator lies, is not there now."
            return self._build_failed_result(reason, budget_status, fault=True)
        seconds = self._seconds(budget_status)
        if seconds <= 0:
            return Failed(error="The time that evaluations may take is used.")
        async with self._slots.slot(stop.event.is_set) as free:
            if not free:
                return self._build_failed_result(
                    "The waiting for an evaluation slot ended because a person spoke.",
                    budget_status,
                )
            snapshot = await self._mark()
            async with _interruption(stop) as interrupted:
                point("worker.evaluation.before")
                attempt = Attempt(budget_status, interrupted, seconds, snapshot)
                refused = await self._check_form(attempt)
                result = refused or await self._compute_score(attempt)
        point("worker.evaluation.after")
        return result

    def _seconds(self, budget_status: BudgetStatus) -> float:
        """How long this evaluation may take."""
        seconds_each, all_of_them = (
            self._task.evaluate.seconds,
            self._task.budget.evaluation_seconds,
        )
        seconds_left = (
            all_of_them - budget_status.evaluation_seconds if all_of_them else seconds_each
        )
        return min(seconds_each, seconds_left)

    async def _check_form(self, attempt: "Attempt") -> EvaluationResult | None:
        """What is wrong with the form of the work; None when it can be scored."""
        evaluate = self._task.evaluate
        if led := await self._check_links(attempt):
            return led
        if evaluate.required:
            result = await self._spawn(attempt, _MISSING, *evaluate.required)
            missing = result.stdout.decode(errors="replace").split("\0")[:-1]
            if result.exit_code is None:
                return self._ended(result, attempt)
            if missing:
                error = (
                    f"The workspace lacks {join_first(missing, _NAMED)}, which must be there to be"
                    " scored; links that lead out of it do not count."
                )
                return self._build_failed_result(
                    error, attempt.budget_status, attempt.seconds_used, "", "format"
                )
        if not evaluate.format:
            return None
        result = await self._spawn_in_folder(attempt, evaluate.format)
        if result.exit_code is None:
            return self._ended(result, attempt)
        if result.exit_code == 0:
            return None
        words = str(safe(result.stdout[:_DETAIL])).strip() or "it does not say what"
        error = f"The format of the work is wrong: {words}"
        detail = str(safe(result.stderr[-_DETAIL:]))
        return self._build_failed_result(
            error, attempt.budget_status, attempt.seconds_used, detail, "format"
        )

    async def _check_links(self, attempt: "Attempt") -> EvaluationResult | None:
        """What is wrong with links of the workspace; None where they lead nowhere special."""
        words = (str(self._folder), *self._visible_paths())
        result = await self._run(attempt, SECONDS, FIND, *words)
        if result.exit_code is None and attempt.interrupted.is_set():
            return self._ended(result, attempt)
        if result.exit_code != 0:
            detail = str(safe(result.stderr[-_DETAIL:]))
            error = "The links of the workspace could not be looked at, so nothing was scored."
            return self._build_failed_result(error, attempt.budget_status, 0.0, detail, fault=True)
        error = links_found(result.stdout)
        return (
            self._build_failed_result(error, attempt.budget_status, 0.0, "", "format")
            if error
            else None
        )

    def _visible_paths(self) -> list[str]:
        """Parts of the task's folder that are mapped for the agent, too: an environment has links
        to its own Python, and so have those that are made of it."""
        named = filter(None, (self._task.activate, *self._task.mapped.read))
        paths = (self._folder / part for part in named)
        return [str(path) for path in paths if self._folder in path.parents]

    async def _spawn_in_folder(self, attempt: "Attempt", command: str) -> ProcessResult:
        """Run a command of the task in its folder, over a copy of the workspace if it wants one."""
        words, copied = (str(self._folder), command), self._task.evaluate.copy
        return await self._spawn(attempt, _IN_FOLDER, *words, copied=copied)

    async def _spawn(
        self, attempt: "Attempt", script: str, *words: str, copied: bool = False
    ) -> ProcessResult:
        """Run a script within the attempt's time."""
        seconds_left = max(0.1, attempt.seconds - attempt.seconds_used)
        result = await self._run(attempt, seconds_left, script, *words, copied=copied)
        attempt.seconds_used += result.seconds
        return result

    async def _run(
        self, attempt: "Attempt", seconds: float, script: str, *words: str, copied: bool = False
    ) -> ProcessResult:
        """Run a script shut in with task folder and workspace."""
        return await self._host.spawn(
            ["/bin/bash", "-c", script, "evaluate", *words],
            seconds=seconds,
            writable=False,
            extra_read=[self._folder],
            stop=attempt.interrupted,
            output_limit=_OUTPUT,
            copied=copied,
        )

    def _ended(self, result: ProcessResult, attempt: "Attempt") -> EvaluationResult:
        """The observation of an evaluation that was cut short."""
        reason = f"took longer than {attempt.seconds:g} s and was ended"
        reason = "was interrupted by a person" if attempt.interrupted.is_set() else reason
        detail = str(safe(result.stderr[-_DETAIL:]))
        error = f"The evaluator {reason}."
        fault = not attempt.interrupted.is_set()
        return self._build_failed_result(
            error, attempt.budget_status, attempt.seconds_used, detail, fault=fault
        )

    async def _compute_score(self, attempt: "Attempt") -> EvaluationResult:
        evaluate, budget_status = self._task.evaluate, attempt.budget_status
        result = await self._spawn_in_folder(attempt, evaluate.command)
        if result.exit_code is None:
            return self._ended(result, attempt)
        seconds, detail = attempt.seconds_used, str(safe(result.stderr[-_DETAIL:]))
        if result.exit_code:
            crash = f"The evaluator failed with exit code {result.exit_code} and gave no score."
            return self._build_failed_result(crash, budget_status, seconds, detail, fault=True)
        try:
            score, metrics = read_score(result.stdout, result.cut, evaluate)
        except Malformed as problem:
            error = f"The evaluator gave no valid score: {problem}."
            detail = f"{detail}\nIt printed: {safe(result.stdout[:_DETAIL])}".strip()
            return self._build_failed_result(
                error, budget_status, seconds, detail, "format", fault=True
            )
        return EvaluationResult(
            overall_score=score,
            state="scored",
            counted=True,
            seconds=round(seconds, 3),
            metrics=metrics,
            left=self._task.budget.evaluations - budget_status.evaluations - 1,
            detail=detail,
            snapshot=attempt.snapshot,
        )

    def _build_failed_result(
        self,
        error: str,
        budget_status: BudgetStatus,
        seconds: float = 0.0,
        detail: str = "",
        state: str = "failed",
        fault: bool = False,
    ) -> EvaluationResult:
        """fault: of the evaluator itself."""
        return EvaluationResult(
            success=False,
            error=error,
            overall_score=None,
            state=state,
            counted=False,
            seconds=round(seconds, 3),
            left=self._task.budget.evaluations - budget_status.evaluations,
            detail=detail,
            evaluator_failed=fault,
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
