"""Rules about what comes after the best score of a rollout: steps that lowered a high one, or that
follow the highest there is.
"""

from collections.abc import Iterator
from itertools import pairwise

from houston_daemon.supervision.attention.window import (
    EVALUATION,
    THINKING,
    WAITING,
    CallSeen,
    StepSeen,
)
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.changing import can_change
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import COMMAND
from houston_daemon.supervision.trace import Scored, Trace
from houston_shared.task_rules import Rules

_SAVES = frozenset({"cp", "rsync", "tar", "zip", "mv", "git", "ln"})
_BESIDE = _SAVES | {"mkdir", "cd", "gzip", "sync", "rm"} | shell.VIEWERS


def lowered_score(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A step changed files after a best score that was high already, and the next score was lower
    than the one before and than the best (known once the rollout has ended; APOLLO, appendix E.4).
    Steps that only look, sleep or back up change none, also while a job in the background does.
    """
    best = _best(trace)
    if best is None or best.score <= settings.high_score:
        return
    scores = trace.scores[trace.scores.index(best) :]
    for last, now in pairwise(scores):
        # Below the best is not enough: what brings a score back up is what should be learned.
        if now.score >= last.score or now.score > best.score - settings.score_drop:
            continue
        why = f"the score fell from {last.score:g} to {now.score:g} in step {now.step}"
        for step in trace.seen:
            if last.step < step.step <= now.step and _changes(step):
                yield Finding(step.step, why)


def after_best(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A step after the highest score that the task can give was reached: nothing was left to gain
    (known once the rollout has ended; APOLLO, appendix E.4). A lower best masks nothing: to work on
    after it is what the task asks for. Backups, bringing the best back and scoring that, sleeping
    and finishing are none.
    """
    best = _best(trace)
    if best is None or best.score < settings.max_score:
        return
    again = {
        now.step
        for last, now in zip(trace.scores, trace.scores[1:], strict=False)
        if last.score < now.score == best.score
    }
    for step in trace.seen:
        if step.step > best.step and step.calls and not _kept(step) and step.step not in again:
            score = f"the highest score, {best.score:g}, was reached in step {best.step}"
            yield Finding(step.step, score)


def _best(trace: Trace) -> Scored | None:
    """The first submission with the highest score; None where it is none, or not known yet."""
    if not trace.ended or not trace.best:  # 0 is what nothing scores, too
        return None
    return next(one for one in trace.scores if one.score == trace.best)


def _changes(step: StepSeen) -> bool:
    """Whether a step has a call that can change files and is no backup, and no snapshot tells that
    it changed none.
    """
    acts = any(can_change(call) and not _saves(call) for call in step.calls)
    return acts and step.changed is not False


def _kept(step: StepSeen) -> bool:
    """Whether a step only backs up, brings back, sleeps or finishes."""
    calls = [call for call in step.calls if call.name not in THINKING]
    end = any(call.name == "finish" for call in calls)
    return bool(calls) and all(
        call.name in WAITING
        or call.name == "finish"
        or (end and call.kind == EVALUATION)
        or _saves(call)
        for call in calls
    )


def _saves(call: CallSeen) -> bool:
    """Whether a call copies files away, or back."""
    if call.name != COMMAND:
        return False
    command = shell.read(str(call.arguments.get("command", "")))
    programs = {one.program for one in command.simple if one.words}
    return bool(programs & _SAVES) and programs <= _BESIDE
