"""Jobs as they are reported to the recorder: what the environment saw, and whether a job failed.

Failure is judged by `command_failures`, as for the attention signal and the rules.
"""

import contextlib

import msgspec

from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.worker_control import WorkerExit
from houston_daemon.environments.environment_protocol import ReportJob
from houston_daemon.review.rules.command_failures import is_job_failure
from houston_shared.records import JobReport


def job_reporter(line: RecorderClient) -> ReportJob:
    """A function that reports jobs. It ignores an old lease: the heartbeat reports that."""

    async def report(job: JobReport, requests: str) -> None:
        with contextlib.suppress(WorkerExit):
            await line.report_job(msgspec.structs.replace(job, failed=has_failed(job, requests)))

    return report


def has_failed(job: JobReport, requests: str) -> bool:
    """Whether a job ended with an error. requests: what the agent asked for since it began."""
    if not job.ended_at or job.stopped_by:
        return False
    if job.exit_code is None:
        return bool(job.end)
    return is_job_failure(job.command, job.exit_code, requests)
