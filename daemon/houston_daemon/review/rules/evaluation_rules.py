"""The rules of submissions, scores and the end: evaluated again or too early, a lowered score,
work after the best one.

Repeated and untimely evaluations, an untimely finish, steps that lowered a high score, and steps
after the highest score there is (APOLLO, appendix E.4). Backups, sleeping and finishing are never
masked.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from houston_daemon.review.attention_signals import repeated_evaluation as repeated
from houston_daemon.review.attention_window import (
    EVALUATION,
    THINKING_ACTIONS,
    WAITING_ACTIONS,
    AttentionWindow,
    ObservedCall,
    ObservedStep,
    excerpt,
)
from houston_daemon.review.rollout_trace import RolloutTrace, RuleFinding, ScoredStep
from houston_daemon.review.rules import shell_commands
from houston_daemon.review.rules.background_jobs import BackgroundJob, all_jobs
from houston_daemon.review.rules.shell_commands import name_of_path
from houston_daemon.review.rules.written_files import (
    RUN_COMMAND,
    can_change_files,
    parsed_command,
)
from houston_shared.task_tables import RuleSettings

_SERVER_WORDS = frozenset(
    {"serve", "server", "tensorboard", "jupyter", "uvicorn", "gunicorn", "watch", "htop", "tail"}
)
"""Words of commands that are left running for others: the end does not wait for them."""


def repeated_evaluation(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """An evaluation was asked for though no file had changed since the one before."""
    for at, step in enumerate(trace.observed_steps):
        if _own_evaluations(step):
            window = AttentionWindow(trace.observed_steps[: at + 1])
            if reason := repeated(window, trace.task.attention):
                yield RuleFinding(step.step, reason)


def untimely_evaluation(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """An evaluation was asked for while what it scores was not there, not in the right form, or
    still being written by a command that runs: as was seen after the last sleep, and after the last
    look at what it writes.
    """
    running = all_jobs(trace)
    required = trace.task.evaluate.required
    for step in trace.observed_steps:
        for call in _own_evaluations(step):
            if call.fields.get("state") == "format":
                yield RuleFinding(
                    step.step,
                    f"nothing could be scored: {excerpt(str(call.fields.get('error', '')))}",
                )
            elif job := _job_writing_required(running, step.step, required):
                yield RuleFinding(step.step, _still_running(job))


def untimely_finish(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """The agent finished while a command still ran, as was seen after the last sleep and after the
    last look at what it writes; without anything that could be scored; or with less than its best
    score.
    """
    for step in trace.observed_steps:
        if not any(call.name == "finish" and call.fields.get("finished") for call in step.calls):
            continue
        for job in all_jobs(trace):
            if _must_end_and_runs(job, step.step):
                yield RuleFinding(step.step, _still_running(job))
        if trace.task.evaluate.command and trace.ended:
            yield from _finished_below_best(trace, step)


def _still_running(job: BackgroundJob) -> str:
    return f"the command of step {job.step} was still running: {excerpt(job.command)}"


def _finished_below_best(trace: RolloutTrace, last: ObservedStep) -> Iterator[RuleFinding]:
    """The evaluation that is made at the end counts: what was restored is scored by it."""
    step = last.step
    scores = [scored.score for scored in trace.scores if scored.step <= step]
    added_calls = last.calls[len(last.own_calls) :]
    if not scores or any(call.fields.get("state") == "format" for call in added_calls):
        yield RuleFinding(step, "it finished without anything that could be scored")
    elif scores[-1] < max(scores):
        best = f"the last score is {scores[-1]:g}, the best was {max(scores):g}"
        yield RuleFinding(step, f"it finished below its best: {best}")


def _own_evaluations(step: ObservedStep) -> list[ObservedCall]:
    """The agent's own evaluations of a step, without that which the loop makes at the end; acts of
    worlds that score by themselves are none.
    """
    return [call for call in step.own_calls if call.kind == call.name == EVALUATION]


def _job_writing_required(
    running: list[BackgroundJob], step: int, required: tuple[str, ...]
) -> BackgroundJob | None:
    """A job that runs and names what is scored."""
    names = [name_of_path(path.rstrip("/")) for path in required]
    for job in running:
        if _must_end_and_runs(job, step) and any(name in job.command for name in names):
            return job
    return None


def _must_end_and_runs(job: BackgroundJob, step: int) -> bool:
    """Whether a job that must come to an end is known to run when a step acts."""
    if not job.known_to_run(step):
        return False
    words = {
        part
        for program in shell_commands.parse_command(job.command).simple
        for word in program.words
        for part in re.split(r"[^a-z]+", word.lower())
    }
    return not words & _SERVER_WORDS


_BACKUP_PROGRAMS = frozenset({"cp", "rsync", "tar", "zip", "mv", "git", "ln"})
_BACKUP_HELPERS = _BACKUP_PROGRAMS | {"mkdir", "cd", "gzip", "sync", "rm"} | shell_commands.VIEWERS


def lowered_score(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """A step changed files after a best score that was high already, and the next score was lower
    than the one before and than the best (known once the rollout has ended; APOLLO, appendix E.4).
    Steps that only look, sleep or back up change none, also while a job in the background does.
    """
    best = _best_submission(trace)
    if best is None or best.score <= settings.high_score:
        return
    scores = trace.scores[trace.scores.index(best) :]
    for last, now in pairwise(scores):
        # Below the best is not enough: what brings a score back up is what should be learned.
        if now.score >= last.score or now.score > best.score - settings.score_drop:
            continue
        reason = f"the score fell from {last.score:g} to {now.score:g} in step {now.step}"
        for step in trace.observed_steps:
            if last.step < step.step <= now.step and _changes_files(step):
                yield RuleFinding(step.step, reason)


def after_best(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """A step after the highest score that the task can give was reached: nothing was left to gain
    (known once the rollout has ended; APOLLO, appendix E.4). A lower best masks nothing: to work on
    after it is what the task asks for. Backups, bringing the best back and scoring that, sleeping
    and finishing are none.
    """
    best = _best_submission(trace)
    if best is None or best.score < settings.max_score:
        return
    again = {
        now.step for last, now in pairwise(trace.scores) if last.score < now.score == best.score
    }
    for step in trace.observed_steps:
        if (
            step.step > best.step
            and step.calls
            and not _only_keeps(step)
            and step.step not in again
        ):
            score = f"the highest score, {best.score:g}, was reached in step {best.step}"
            yield RuleFinding(step.step, score)


def _best_submission(trace: RolloutTrace) -> ScoredStep | None:
    """The first submission with the highest score; None where it is none, or not known yet."""
    if not trace.ended or not trace.best:  # 0 is what nothing scores, too
        return None
    return next(scored for scored in trace.scores if scored.score == trace.best)


def _changes_files(step: ObservedStep) -> bool:
    """Whether a step has a call that can change files and is no backup, and no snapshot tells that
    it changed none.
    """
    acts = any(can_change_files(call) and not _is_backup(call) for call in step.calls)
    return acts and step.changed is not False


def _only_keeps(step: ObservedStep) -> bool:
    """Whether a step only backs up, brings back, sleeps or finishes."""
    calls = [call for call in step.calls if call.name not in THINKING_ACTIONS]
    end = any(call.name == "finish" for call in calls)
    return bool(calls) and all(
        call.name in WAITING_ACTIONS
        or call.name == "finish"
        or (end and call.kind == EVALUATION)
        or _is_backup(call)
        for call in calls
    )


def _is_backup(call: ObservedCall) -> bool:
    """Whether a call copies files away, or back."""
    if call.name != RUN_COMMAND:
        return False
    programs = {program.program for program in parsed_command(call).simple if program.words}
    return bool(programs & _BACKUP_PROGRAMS) and programs <= _BACKUP_HELPERS
