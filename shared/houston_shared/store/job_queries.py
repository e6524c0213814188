"""Jobs of a rollout: commands that outlived the call which started them, and how they ended.

Lists, lines and reasons read them here. A failed job counts until another one follows it: the next
in its session's foreground, or for what was started apart the same command again. Who sees that a
job runs or has ended is the daemon's business, and so is whether that was a failure.
"""

from typing import Any, Literal, NamedTuple

from houston_shared.store.journal_events import (
    ReadPlan,
    RowRecord,
    RunSql,
    column_list,
    rows_to_records,
)
from houston_shared.times_and_counts import iso_time

JobState = Literal["running", "done", "failed", "stopped", "ended"]
"""`stopped`: by the agent, or with its rollout. `ended`: with an exit code that is an answer, or
nobody could tell how."""


class JobRow(RowRecord, frozen=True):
    """A row of `jobs`, without its rollout."""

    host: str
    id: str
    step: int
    """The step that left it running."""
    session: str
    command: str
    started_at: int
    """UTC microseconds."""
    ended_at: int | None
    exit_code: int | None
    failed: int
    stopped_by: str
    """`agent`, `rollout`, or empty."""
    ending: str
    """How its session ended, where that ended it."""
    log_start: int | None
    """Where its output begins in its session's log; None for what was started apart."""
    log_end: int | None
    output: str
    """The file that it prints to, as the agent sees it; empty for its session."""
    last_line: str
    """The last that it printed, once it has ended; empty where that is not known."""
    seq: int
    """The newest event about it."""

    @property
    def state(self) -> JobState:
        """How it stands."""
        if self.ended_at is None:
            return "running"
        if self.stopped_by:
            return "stopped"
        if self.failed:
            return "failed"
        return "done" if self.exit_code == 0 else "ended"

    def seconds(self, now: int) -> float:
        """How long it has run, or ran. now: UTC microseconds."""
        return max(0, (self.ended_at or now) - self.started_at) / 1e6


def list_jobs(rollout: str) -> ReadPlan[list[JobRow]]:
    """All jobs of a rollout, in the order in which they began; a branch has its own only."""
    rows = yield RunSql(
        f"SELECT {column_list(JobRow)} FROM jobs WHERE rollout = ? ORDER BY started_at, id",
        (rollout,),
    )
    return rows_to_records(JobRow, rows)


def list_jobs_ended_since(rollout: str, after: int) -> ReadPlan[list[JobRow]]:
    """Those that ended by themselves behind the event `after`, as it was told."""
    rows = yield RunSql(
        f"SELECT {column_list(JobRow)} FROM jobs WHERE rollout = ? AND seq > ?"
        " AND ended_at IS NOT NULL AND stopped_by = '' ORDER BY seq",
        (rollout, after),
    )
    return rows_to_records(JobRow, rows)


def describe_end(job: JobRow) -> str:
    """How a job ended."""
    if job.exit_code is not None:
        return f"ended with exit code {job.exit_code}"
    return job.ending or "ended"


def job_json(job: JobRow, now: int) -> dict[str, Any]:
    """A job as `houston jobs --json` gives it; it is not said where in a log its output lies."""
    return {
        "host": job.host,
        "session": job.session,
        "id": job.id,
        "step": job.step,
        "command": job.command,
        "state": job.state,
        "started_at": iso_time(job.started_at),
        "ended_at": job.ended_at and iso_time(job.ended_at),
        "seconds": round(job.seconds(now), 1),
        "exit_code": job.exit_code,
        "stopped_by": job.stopped_by,
        "ending": job.ending,
        "output": job.output,
        "last_line": job.last_line,
    }


RECENT_STEPS = 5
"""Closed steps after which a failed job is no news any more."""


class FailedJob(NamedTuple):
    """The newest job of a rollout that failed and that no other has followed."""

    job: JobRow
    is_recent: bool
    """Whether at most `RECENT_STEPS` steps have closed since."""
    is_unseen: bool
    """Whether no step has closed since: the agent cannot know."""
    failures: int = 1
    """Such jobs, itself included: of the last steps where it is, else all."""


class JobSummary(NamedTuple):
    """The jobs of one rollout that lives, in a few facts."""

    running: tuple[JobRow, ...] = ()
    """In the order in which they began."""
    failed: FailedJob | None = None


NO_JOBS = JobSummary()
COMMAND_EXCERPT = 100
"""Characters of a command in a sentence."""


def describe_job_command(command: str) -> str:
    """A command on one line, cut."""
    line = " ".join(command.split())
    return line if len(line) <= COMMAND_EXCERPT else f"{line[: COMMAND_EXCERPT - 1]}…"


def describe_failed_job(failed: FailedJob) -> str:
    """How many failed, the last of them, where, and whether the agent can know."""
    job = failed.job
    since = "; the agent has closed no step since" if failed.is_unseen else ""
    place = f"session {job.session}, step {job.step}"
    others = f"{failed.failures} jobs, the last " if failed.failures > 1 else ""
    return f"{others}{describe_job_command(job.command)} ({place}) {describe_end(job)}{since}"


_FAILED = f"""
SELECT j.rollout, {column_list(JobRow, "j")},
    j.seq > coalesce((SELECT observation_seq FROM steps WHERE rollout = r.id
        AND step = r.steps - {RECENT_STEPS} AND current), 0),
    j.seq > coalesce((SELECT observation_seq FROM steps WHERE rollout = r.id
        AND step = r.steps AND current), 0)
FROM rollouts r JOIN jobs j ON j.rollout = r.id AND j.failed = 1
WHERE r.state IN ('queued', 'running', 'paused') AND (?1 = '' OR r.id = ?1) AND NOT EXISTS (
    SELECT 1 FROM jobs k WHERE k.rollout = j.rollout AND k.host = j.host AND k.session = j.session
    AND k.started_at > j.started_at AND (k.log_start IS NULL) = (j.log_start IS NULL)
    AND (j.log_start IS NOT NULL OR k.command = j.command))
ORDER BY j.seq
"""


def read_job_summaries(rollout: str = "") -> ReadPlan[dict[str, JobSummary]]:
    """By rollout that lives: what runs, and what failed last; of one alone when named."""
    running = yield RunSql(
        f"SELECT rollout, {column_list(JobRow)} FROM jobs WHERE ended_at IS NULL"
        " AND (?1 = '' OR rollout = ?1) ORDER BY started_at, id",
        (rollout,),
    )
    failed = yield RunSql(_FAILED, (rollout,))
    summaries: dict[str, JobSummary] = {}
    for row in running:
        (job,) = rows_to_records(JobRow, [row[1:]])
        summary = summaries.get(row[0], JobSummary())
        summaries[row[0]] = summary._replace(running=(*summary.running, job))
    for row in failed:
        (job,) = rows_to_records(JobRow, [row[1:-2]])
        summary = summaries.get(row[0], JobSummary())
        before = summary.failed
        counts_on = before is not None and before.is_recent == bool(row[-2])
        count = before.failures + 1 if before is not None and counts_on else 1
        newest = FailedJob(job, bool(row[-2]), bool(row[-1]), count)
        summaries[row[0]] = summary._replace(failed=newest)
    return summaries
