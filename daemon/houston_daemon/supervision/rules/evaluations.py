"""Rules about submissions and the end: again without a change, too early, or below the best."""

import re
from collections.abc import Iterator

from houston_daemon.supervision.attention.repeats import repeated_evaluation as repeated
from houston_daemon.supervision.attention.window import EVALUATION, CallSeen, StepSeen, Window, cut
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.jobs import Job, jobs
from houston_daemon.supervision.trace import Trace
from houston_shared.task_rules import Rules

_SERVERS = frozenset(
    {"serve", "server", "tensorboard", "jupyter", "uvicorn", "gunicorn", "watch", "htop", "tail"}
)
"""Words of commands that are left running for others: the end does not wait for them."""


def repeated_evaluation(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """An evaluation was asked for though no file had changed since the one before."""
    for at, step in enumerate(trace.seen):
        if _asked(step):
            window = Window(trace.seen[: at + 1])
            if why := repeated(window, trace.task.attention):
                yield Finding(step.step, why)


def untimely_evaluation(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """An evaluation was asked for while what it scores was not there, not in the right form, or
    still being written by a command that runs: as was seen after the last sleep, and after the last
    look at what it writes.
    """
    running = jobs(trace)
    required = trace.task.evaluate.required
    for step in trace.seen:
        for call in _asked(step):
            if call.fields.get("state") == "format":
                yield Finding(
                    step.step, f"nothing could be scored: {cut(str(call.fields.get('error', '')))}"
                )
            elif job := _writer(running, step.step, required):
                said = f"step {job.step} was still running: {cut(job.command)}"
                yield Finding(step.step, f"the command of {said}")


def untimely_finish(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """The agent finished while a command still ran, as was seen after the last sleep and after the
    last look at what it writes; without anything that could be scored; or with less than its best
    score.
    """
    for step in trace.seen:
        if not any(call.name == "finish" and call.fields.get("finished") for call in step.calls):
            continue
        for job in jobs(trace):
            if _runs(job, step.step):
                yield Finding(
                    step.step,
                    f"the command of step {job.step} was still running: {cut(job.command)}",
                )
        if trace.task.evaluate.command and trace.ended:
            yield from _below(trace, step)


def _below(trace: Trace, last: StepSeen) -> Iterator[Finding]:
    """The evaluation that is made at the end counts: what was restored is scored by it."""
    step = last.step
    scores = [one.score for one in trace.scores if one.step <= step]
    made = last.calls[len(last.calls) - last.added :]
    if not scores or any(call.fields.get("state") == "format" for call in made):
        yield Finding(step, "it finished without anything that could be scored")
    elif scores[-1] < max(scores):
        best = f"the last score is {scores[-1]:g}, the best was {max(scores):g}"
        yield Finding(step, f"it finished below its best: {best}")


def _asked(step: StepSeen) -> list[CallSeen]:
    """The agent's own evaluations of a step, without that which the loop makes at the end; acts of
    worlds that score by themselves are none.
    """
    own = step.calls[: len(step.calls) - step.added]
    return [call for call in own if call.kind == call.name == EVALUATION]


def _writer(running: list[Job], step: int, required: tuple[str, ...]) -> Job | None:
    """A job that runs and names what is scored."""
    names = [path.rstrip("/").rpartition("/")[2] for path in required]
    for job in running:
        if _runs(job, step) and any(name in job.command for name in names):
            return job
    return None


def _runs(job: Job, step: int) -> bool:
    """Whether a job that must come to an end is known to run when a step acts."""
    if not job.known_to_run(step):
        return False
    words = {
        part
        for one in shell.read(job.command).simple
        for word in one.words
        for part in re.split(r"[^a-z]+", word.lower())
    }
    return not words & _SERVERS
