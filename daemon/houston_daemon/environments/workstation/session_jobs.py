"""Jobs of one host: commands that outlived the call which started them, followed until they end.

A job is what a call left running in a session's foreground, or what it started apart (`&`,
`nohup`), once the call has returned. Every status of a session passes through `note`; news is
reported, also while the agent sleeps. The receiver judges whether an end was a failure.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from houston_daemon.environments.environment_protocol import ReportJob
from houston_daemon.environments.workstation.workstation_state import WorkstationState
from houston_daemon.hosts.host_protocol import BackgroundCommand, TerminalStatus
from houston_shared.errors import HoustonError
from houston_shared.records import JobReport
from houston_shared.secret_redaction import redact
from houston_shared.times_and_counts import now_us

log = logging.getLogger(__name__)
ReadLastLine = Callable[[str, int, int], Awaitable[str]]
"""The last line that a session printed between two offsets of its log; empty for none."""
COMMAND_CHARACTERS = 500
"""Characters of a command that are told."""
LINE_CHARACTERS = 300
"""Characters of a last line that are told: its end."""
_MAX_REQUESTS = 500
_CLOSED = "its session was closed"


class SessionJobs:
    """The jobs of a rollout on one host; `jobs` of the state are those whose end is not stored."""

    def __init__(self, host: str, state: Callable[[], WorkstationState], report: ReportJob) -> None:
        self._host = host
        self._state = state
        self._report = report
        self._news: dict[str, JobReport] = {}
        self._refusals: dict[str, str] = {}
        """Id of a job that cannot be told → why not."""
        self._awaiting_exit_code: set[str] = set()
        """Ids of those that have ended, and whose shell may yet tell how."""
        self._requests: list[str] = []
        """What the agent asked for since the oldest job that runs."""
        self.step = 0
        """The step that is open; 0 until the agent asks for something."""
        self.has_news = asyncio.Event()

    @property
    def open_jobs(self) -> dict[str, JobReport]:
        """By id, those that run, and those whose end is not stored or not known yet."""
        return self._state().jobs

    def begin(self) -> None:
        """Report an earlier worker's jobs again: it may not have done so."""
        for job in list(self.open_jobs.values()):
            if job.step:
                self._tell(job)
            else:  # kept by a worker that had heard of no step: it is noted anew
                del self.open_jobs[job.id]

    def hear(self, step: int, request: str) -> None:
        """The agent asks for something. request: its arguments."""
        self.step = step
        self._requests = self._requests[-_MAX_REQUESTS:] if self.open_jobs else []
        self._requests.append(request)

    def left_running(self, status: TerminalStatus) -> None:
        """A call has returned while its command runs in the session's foreground."""
        name = _foreground_id(status)
        if status.busy and name not in self.open_jobs:
            self._open(
                JobReport(
                    id=name,
                    step=self.step,
                    host=self._host,
                    session=status.name,
                    command=_redacted_command(status.command),
                    started_at=_microseconds(status.command_began) or now_us(),
                    log_start=status.log_start,
                )
            )

    def stopping(self, session: str) -> None:
        """The agent signals what runs in the foreground."""
        for name, job in self.open_jobs.items():
            if job.session == session and job.log_start is not None and not job.ended_at:
                self.open_jobs[name] = msgspec.structs.replace(job, stopped_by="agent")

    def note(self, status: TerminalStatus) -> None:
        """Update jobs from a session's status; for a job whose place another has taken, how it
        ended stays unknown."""
        background = {_background_id(status, command): command for command in status.background}
        for name, command in background.items():
            if self.step and name not in self.open_jobs and not command.ended:
                self._open(self._background_report(name, status, command))
        for job in [job for job in self.open_jobs.values() if job.session == status.name]:
            if job.log_start is not None:
                self._note_foreground(job, status)
            elif (apart := background.get(job.id)) is None:  # another shell is there, or many more
                self._awaiting_exit_code.discard(job.id)
                self._end(job)
            elif apart.ended:
                self._note_ended_apart(job, apart, status)

    def closed(self, status: TerminalStatus) -> None:
        """The agent has closed a session."""
        for job in [job for job in self.open_jobs.values() if job.session == status.name]:
            self._awaiting_exit_code.discard(job.id)
            closed = msgspec.structs.replace(job, stopped_by="agent", log_end=status.log_bytes)
            self._end(job if job.ended_at else closed, end=_CLOSED)

    async def report_news(self, last_line: ReadLastLine) -> None:
        """Report what is new; news that arrives meanwhile stays, and a report that fails is retried
        the next time."""
        self.has_news.clear()
        refused: set[str] = set()
        while waiting := [name for name in self._news if name not in refused]:
            name, noted = waiting[0], self._news[waiting[0]]
            try:
                await self._report_job(noted, last_line)
                self._refusals.pop(name, None)
            except HoustonError as problem:
                refused.add(name)
                self._note_refusal(name, str(problem))
                continue
            if self._news.get(name) is noted:
                del self._news[name]
                if noted.ended_at and name not in self._awaiting_exit_code:
                    self.open_jobs.pop(name, None)

    async def _report_job(self, job: JobReport, last_line: ReadLastLine) -> None:
        if job.log_start is not None and job.log_end is not None:
            line = await last_line(job.session, job.log_start, job.log_end)
            job = msgspec.structs.replace(job, last_line=redact(line)[-LINE_CHARACTERS:])
        await self._report(job, "\n".join(self._requests))

    def _note_refusal(self, name: str, reason: str) -> None:
        if self._refusals.get(name) != reason:  # once, however often it is tried
            log.warning("job %s cannot be reported: %s", name, reason)
        self._refusals[name] = reason

    def _note_foreground(self, job: JobReport, status: TerminalStatus) -> None:
        if job.ended_at:
            return
        if _foreground_id(status) != job.id:
            self._end(msgspec.structs.replace(job, log_end=status.log_start))
        elif not status.busy:
            self._end(
                msgspec.structs.replace(job, log_end=status.log_bytes),
                status.command_ended,
                status.exit_code,
                status.end,
            )

    def _background_report(
        self, name: str, status: TerminalStatus, command: BackgroundCommand
    ) -> JobReport:
        return JobReport(
            id=name,
            step=self.step,
            host=self._host,
            session=status.name,
            command=_redacted_command(command.command),
            started_at=_microseconds(command.began),
            output=redact(command.output)[-COMMAND_CHARACTERS:],
        )

    def _note_ended_apart(
        self, job: JobReport, command: BackgroundCommand, status: TerminalStatus
    ) -> None:
        """It is told once that it ended, and once more when its shell has told how."""
        if job.ended_at and (command.exit_code is None or job.exit_code is not None):
            return
        if command.exit_code is None and not command.adopted and status.alive:
            self._awaiting_exit_code.add(job.id)
        else:
            self._awaiting_exit_code.discard(job.id)
        line = redact(command.last_line)[-LINE_CHARACTERS:]
        ended = msgspec.structs.replace(job, last_line=line, ended_at=0)
        self._end(ended, command.ended, command.exit_code, status.end)

    def _open(self, job: JobReport) -> None:
        self.open_jobs[job.id] = job
        self._tell(job)

    def _end(
        self, job: JobReport, ended: float = 0.0, exit_code: int | None = None, end: str = ""
    ) -> None:
        """ended: Unix time; now where it is not known. It stays open until that is stored."""
        if not job.ended_at:
            ended_at = max(_microseconds(ended) or now_us(), job.started_at)
            job = msgspec.structs.replace(
                job, ended_at=ended_at, exit_code=exit_code, end=redact(end)
            )
        self._open(job)

    def _tell(self, job: JobReport) -> None:
        self._news[job.id] = job
        self.has_news.set()


def _foreground_id(status: TerminalStatus) -> str:
    """Unique for good: the log of a session only grows."""
    return f"{status.name}@{status.log_start}"


def _background_id(status: TerminalStatus, command: BackgroundCommand) -> str:
    return f"{status.name}#{command.key}"


def _redacted_command(command: str) -> str:
    return redact(command.strip())[:COMMAND_CHARACTERS]


def _microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)
