"""The table of attention signals, and the tracker that runs them during a rollout.

`SIGNALS` names every signal in the order in which a step lists them: add one here. Packages add
others by entry point. The signal of failed background jobs is defined here too, because it needs
the rules' knowledge of jobs and exit codes. `AttentionTracker` keeps the window of one rollout; a
resumed worker fills it again from the journal.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from houston_daemon.review import attention_signals
from houston_daemon.review.attention_window import (
    AttentionWindow,
    ObservedCall,
    ObservedStep,
    RemainingBudgets,
    excerpt,
    observe_record,
    window_length,
)
from houston_daemon.review.rules import command_failures
from houston_daemon.review.rules.background_jobs import (
    BackgroundJob,
    SessionKey,
    follow_jobs,
    session_of_call,
)
from houston_daemon.review.rules.command_failures import DetachedProgram, follow_detached_programs
from houston_daemon.review.rules.written_files import RUN_COMMAND
from houston_shared import plugins
from houston_shared.errors import ConfigurationError
from houston_shared.records import StepRecord, ToolResult
from houston_shared.task import AttentionSettings


@dataclass(slots=True)
class BackgroundJobs:
    """The jobs of one rollout that run, as far as its calls told of them."""

    first: str = "local"
    """Name of the first host."""
    running: dict[SessionKey, BackgroundJob] = field(default_factory=dict)
    _ended_unexplained: dict[SessionKey, BackgroundJob] = field(default_factory=dict)
    """Jobs that were seen to have ended, but not yet how: by `sleep`, or by a session's idling."""
    _detached: list[DetachedProgram] = field(default_factory=list)
    """Programs that were started apart from the sessions, with `&` or `nohup`."""
    _agent_arguments: dict[int, str] = field(default_factory=dict)
    """By step since the oldest job that runs, what the agent asked for: it may have ended one."""

    def follow_step(self, step: ObservedStep, results: Sequence[ToolResult]) -> ObservedStep:
        """`step`, with the jobs that it showed to have failed. results: of its calls, in order."""
        self._agent_arguments[step.step] = step.argument_text
        failed: list[str] = []
        for call in step.calls:
            jobs = follow_jobs(call, step.step, self.running, self.first)
            ended = [job for job in jobs if job.ended_in_step]
            ended += self._ended_job(call)
            failed += filter(None, [self._failure(job, call) for job in ended])
            self._adopt_running(call, step.step)
        for call, result in zip(step.calls, results, strict=False):
            for program, reason in follow_detached_programs(
                call, result, step.step, self._detached, self.first
            ):
                failed.append(f"{excerpt(program.command)} (step {program.step}): {reason}")
        open_jobs = (*self.running.values(), *self._ended_unexplained.values())
        oldest = min((job.step for job in open_jobs), default=step.step + 1)
        self._agent_arguments = {
            at: text for at, text in self._agent_arguments.items() if at >= oldest
        }
        return replace(step, failed_jobs=tuple(failed)) if failed else step

    def _ended_job(self, call: ObservedCall) -> list[BackgroundJob]:
        """The job of which a call tells how it ended, after another told that it did."""
        runs = call.fields.get("running")
        job = (
            self._ended_unexplained.pop(session_of_call(call, self.first), None)
            if isinstance(runs, bool)
            else None
        )
        if job is None or runs or call.name == RUN_COMMAND:  # something else has run there since
            return []
        job.exit_code = call.fields.get("exit_code")
        return [job]

    def _adopt_running(self, call: ObservedCall, step: int) -> None:
        """A job that is seen to run and whose beginning was not: it lies before what was read."""
        key = session_of_call(call, self.first)
        if call.fields.get("running") is True and key not in self.running:
            command = str(call.fields.get("command") or "what ran there")
            self.running[key] = BackgroundJob(*key, command, step)

    def _failure(self, job: BackgroundJob, call: ObservedCall) -> str:
        """How a job failed; empty where it did not, where nobody knows, or the agent ended it."""
        place = f"session {job.session}" + (f" on {job.host}" if job.host else "")
        job_text = f"{excerpt(job.command)} (seen to run in step {job.step}, {place})"
        if job.killed:
            return ""
        if job.exit_code is None and (end := str(call.fields.get("end") or "")):
            return f"{job_text}: {excerpt(end)}"
        if job.exit_code is None and call.name != RUN_COMMAND:
            self._ended_unexplained[SessionKey(job.host, job.session)] = job
        code = job.exit_code
        later = "\n".join(text for at, text in self._agent_arguments.items() if at >= job.step)
        if not code or not command_failures.is_job_failure(job.command, code, later):
            return ""
        return f"{job_text} ended with exit code {code}"


def job_failed(window: AttentionWindow, _: AttentionSettings) -> str:
    """A command that was left running ended with an error, or died with its session; or one that
    was started with `&` or `nohup` failed, as its log or the shell shows. What the agent ended
    itself, and an exit code that is an answer (`grep`, a test runner), is no failure.
    """
    return "; ".join(window.now.failed_jobs)


log = logging.getLogger(__name__)
SIGNALS_VERSION = 5
"""Raised when a signal is added, taken away, or holds in other cases than before."""
Signal = Callable[[AttentionWindow, AttentionSettings], str]
SIGNALS: Mapping[str, Signal] = {
    "interrupted": attention_signals.interrupted,
    "null_action": attention_signals.null_action,
    "error": attention_signals.error,
    "forged_tag": attention_signals.forged_tag,
    "error_streak": attention_signals.error_streak,
    "repeated_action": attention_signals.repeated_action,
    "blind_edit": attention_signals.blind_edit,
    "no_change": attention_signals.no_change,
    "long_sleep": attention_signals.long_sleep,
    "idle_sleep": attention_signals.idle_sleep,
    "repeated_evaluation": attention_signals.repeated_evaluation,
    "job_failed": job_failed,
    "evaluator_failed": attention_signals.evaluator_failed,
    "guidance_ignored": attention_signals.guidance_ignored,
    "score_fell": attention_signals.score_fell,
    "no_gain": attention_signals.no_gain,
    "near_budget": attention_signals.near_budget,
    "no_submission": attention_signals.no_submission,
    "low_finish": attention_signals.low_finish,
}
MAX_REASON_CHARACTERS = 300
"""Characters."""


def load_signals(names: tuple[str, ...]) -> dict[str, Signal]:
    """Houston's signals, then those of packages. names: the entry points that a task names.

    Raises ConfigurationError for one that is not installed, cannot be imported or is no function.
    """
    signals = dict(SIGNALS)
    for name in names:
        if name in SIGNALS:
            raise ConfigurationError(
                f"The signal {name!r} is built into Houston and always on.",
                next="Take it out of `signals`; its threshold is another key of [attention].",
            )
        signals[name] = _guarded_signal(
            name, plugins.load_plugin(plugins.SIGNAL_GROUP, name, "signal")
        )
    return signals


def active_signals(
    window: AttentionWindow, limits: AttentionSettings, signals: Mapping[str, Signal] = SIGNALS
) -> dict[str, str]:
    """The signals that hold for the newest step of `window`, each with its reason in words."""
    reasons = ((name, says(window, limits)) for name, says in signals.items())
    return {name: reason[:MAX_REASON_CHARACTERS] for name, reason in reasons if reason}


def _guarded_signal(name: str, says: Any) -> Signal:
    """A package's signal; what is wrong with its code marks the step, and ends no rollout."""
    if not callable(says):
        raise ConfigurationError(f"The signal {name!r} is not a function but {says!r}.")

    def guarded(window: AttentionWindow, limits: AttentionSettings) -> str:
        try:
            reason = says(window, limits)
        except Exception as problem:
            log.warning("the signal %s failed", name, exc_info=True)
            return f"the code of this signal failed: {type(problem).__name__}: {problem}"
        if isinstance(reason, str):
            return reason
        return f"the code of this signal failed: it gave {reason!r}, which is no text"

    return guarded


class AttentionTracker:
    """The last closed steps of a rollout, as many as signals look at."""

    def __init__(
        self, limits: AttentionSettings, records: Iterable[StepRecord] = (), first: str = "local"
    ) -> None:
        """records: closed steps of before, in order; those that are too old are left out.

        first: name of the task's first host.

        Raises ConfigurationError for a signal of a package that is not there.
        """
        self._limits = limits
        self._signals = load_signals(limits.signals)
        self._steps: deque[ObservedStep] = deque(maxlen=window_length(limits))
        self._background = BackgroundJobs(first)
        self._step_count, self._acting_count = 0, 0
        """Steps that were taken, and those of them that acted."""
        for record in records:
            self.replay(record)

    def replay(self, record: StepRecord) -> None:
        """Take a step that the journal has already; an open one is left out."""
        if (step := observe_record(record)) is not None:
            self._take(step, record.results)

    @property
    def cut_off(self) -> bool:
        """Whether what the last steps repeat may have begun before the first taken."""
        if not self._steps:
            return False
        last = next((step for step in reversed(self._steps) if step.acts), self._steps[-1])
        repeats_all = any(
            run.repeats + turn >= self._acting_count for turn, run in enumerate(last.runs, 1)
        )
        return repeats_all or self._steps[-1].failing >= self._step_count

    def _take(self, step: ObservedStep, results: Sequence[ToolResult]) -> None:
        step = self._background.follow_step(step, results)
        self._steps.append(
            attention_signals.with_failing_count(
                attention_signals.with_repeat_counts(step, self._steps), self._steps
            )
        )
        self._step_count, self._acting_count = self._step_count + 1, self._acting_count + step.acts

    def step(
        self, step: ObservedStep, budgets: RemainingBudgets, results: Sequence[ToolResult] = ()
    ) -> dict[str, str]:
        """Take a step that closes now; its signals with their reasons. results: of its calls."""
        self._take(step, results)
        return active_signals(
            AttentionWindow(tuple(self._steps), budgets), self._limits, self._signals
        )
