"""The signal of a background job that failed: a command left running that ended with an error.

When a job of a session began and ended is `rules.jobs`' part, what its exit code means
`rules.exit_codes`', and what a log or the shell tells of programs apart from the sessions
`rules.failures`': home shows a job as failed where the rule would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from houston_daemon.supervision.attention.window import CallSeen, StepSeen, Window, cut
from houston_daemon.supervision.rules import exit_codes
from houston_daemon.supervision.rules.failures import Apart, follow_apart
from houston_daemon.supervision.rules.history import COMMAND
from houston_daemon.supervision.rules.jobs import Job, Key, follow, where
from houston_shared.records import Result
from houston_shared.task import Attention


@dataclass(slots=True)
class Background:
    """The jobs of one rollout that run, as far as its calls told of them."""

    first: str = "local"
    """Name of the first host."""
    running: dict[Key, Job] = field(default_factory=dict)
    _over: dict[Key, Job] = field(default_factory=dict)
    """Jobs that were seen to have ended, but not yet how: by `sleep`, or by a session's idling."""
    _apart: list[Apart] = field(default_factory=list)
    """Programs that were started apart from the sessions, with `&` or `nohup`."""
    _done: dict[int, str] = field(default_factory=dict)
    """By step since the oldest job that runs, what the agent asked for: it may have ended one."""

    def followed(self, step: StepSeen, results: Sequence[Result] = ()) -> StepSeen:
        """`step`, with the jobs that it showed to have failed. results: of its calls, in order."""
        asked = (str(v) for one in step.calls for k, v in one.arguments.items() if k != "content")
        self._done[step.step] = "\n".join(asked)
        failed: list[str] = []
        for call in step.calls:
            ended = [job for job in follow(call, step.step, self.running, self.first) if job.end]
            ended += self._told(call)
            failed += filter(None, [self._failure(job, call) for job in ended])
            self._adopt(call, step.step)
        for call, result in zip(step.calls, results, strict=False):
            for one, why in follow_apart(call, result, step.step, self._apart, self.first):
                failed.append(f"{cut(one.command)} (step {one.step}): {why}")
        known = (*self.running.values(), *self._over.values())
        oldest = min((job.step for job in known), default=step.step + 1)
        self._done = {at: text for at, text in self._done.items() if at >= oldest}
        return replace(step, failed_jobs=tuple(failed)) if failed else step

    def _told(self, call: CallSeen) -> list[Job]:
        """The job of which a call tells how it ended, after another told that it did."""
        runs = call.fields.get("running")
        job = self._over.pop(where(call, self.first), None) if isinstance(runs, bool) else None
        if job is None or runs or call.name == COMMAND:  # something else has run there since
            return []
        job.code = call.fields.get("exit_code")
        return [job]

    def _adopt(self, call: CallSeen, step: int) -> None:
        """A job that is seen to run and whose beginning was not: it lies before what was read."""
        key = where(call, self.first)
        if call.fields.get("running") is True and key not in self.running:
            command = str(call.fields.get("command") or "what ran there")
            self.running[key] = Job(*key, command, step)

    def _failure(self, job: Job, call: CallSeen) -> str:
        """How a job failed; empty where it did not, where nobody knows, or the agent ended it."""
        place = f"session {job.session}" + (f" on {job.host}" if job.host else "")
        what = f"{cut(job.command)} (seen to run in step {job.step}, {place})"
        if job.killed:
            return ""
        if job.code is None and (end := str(call.fields.get("end") or "")):
            return f"{what}: {cut(end)}"
        if job.code is None and call.name != COMMAND:
            self._over[Key(job.host, job.session)] = job
        done = "\n".join(text for at, text in self._done.items() if at >= job.step)
        answer = job.code == 1 and exit_codes.answers(job.command, "it may have printed")
        if not job.code or answer or exit_codes.asked_for(job.code, job.command, done):
            return ""
        return f"{what} ended with exit code {job.code}"


def job_failed(window: Window, _: Attention) -> str:
    """A command that was left running ended with an error, or died with its session; or one that
    was started with `&` or `nohup` failed, as its log or the shell shows. What the agent ended
    itself, and an exit code that is an answer (`grep`), is no failure.
    """
    return "; ".join(window.now.failed_jobs)
