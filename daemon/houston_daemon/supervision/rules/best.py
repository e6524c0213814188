"""Rules about what comes after the best score of a rollout: steps that lowered a high one, or that
follow the highest there is.
"""

from collections.abc import Iterator

from houston_daemon.supervision.attention.window import (
    EVALUATION,
    HARMLESS,
    THINKING,
    WAITING,
    CallSeen,
    StepSeen,
)
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import COMMAND
from houston_daemon.supervision.trace import Scored, Trace
from houston_shared.task_rules import Rules

_SAVES = frozenset({"cp", "rsync", "tar", "zip", "mv", "git", "ln"})
_BESIDE = _SAVES | {"mkdir", "cd", "gzip", "sync", "rm"} | shell.VIEWERS


def lowered_score(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A step changed files after a best score that was high already, and the next score was lower
    (known once the rollout has ended; APOLLO, appendix E.4).
    """
    best = _best(trace)
    if best is None or best.score <= settings.high_score:
        return
    before = best.step
    for scored in (one for one in trace.scores if one.step > best.step):
        if scored.score <= best.score - settings.score_drop:
            why = f"the score fell from {best.score:g} to {scored.score:g} in step {scored.step}"
            for step in trace.seen:
                if before < step.step <= scored.step and _changes(step) and not _kept(step):
                    yield Finding(step.step, why)
        before = scored.step


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
    """Whether a step changed files; where no snapshot could tell, whether it could."""
    if step.changed is not None:
        return step.changed
    return any(call.name not in HARMLESS for call in step.calls)


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
