"""Commands that were left running: when each began, was seen to run, and ended, and how.

This is what the agent could know about jobs, for verdicts on what it did; what really runs and how
it ended is reported to the recorder as it happens (`houston_shared.store.job_queries`).

A job is identified by its host and session. What calls show of sessions (status, idle, sleep,
killed, closed) is followed step by step, for one call (`follow_jobs`) or a whole rollout
(`all_jobs`). `command_failures` decides whether an exit code is an error.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from houston_daemon.review.attention_window import (
    EVALUATION,
    WAITING_ACTIONS,
    ObservedCall,
    command_of,
    host_of_call,
)
from houston_daemon.review.rollout_trace import RolloutTrace
from houston_daemon.review.rules import shell_commands
from houston_daemon.review.rules.shell_commands import name_of_path
from houston_daemon.review.rules.written_files import RUN_COMMAND

_FILE_NAME = re.compile(r"(?<![\w.-])[\w-][\w.-]*\.[A-Za-z]\w*")
"""A file's name as a command tells it."""


@dataclass(slots=True)
class BackgroundJob:
    """A command that a step left running in a session."""

    host: str
    """Empty for the first."""
    session: str
    command: str
    step: int
    """The step that started it."""
    ended_in_step: int | None = None
    """The step that saw it ended; None while it may still run."""
    exit_code: int | None = None
    """Its exit code; None where that was not seen."""
    killed: bool = False
    """Whether the agent ended it."""
    sightings: list[tuple[int, bool]] = field(default_factory=list)
    """Steps, in order, each with whether its call showed that it runs (True), or is one after which
    it may have ended (False): a sleep, or a look at what it writes."""

    def known_to_run(self, step: int) -> bool:
        """Whether it ran when this step acted: seen, not left alone since, not seen to end."""
        over = self.ended_in_step is not None and self.ended_in_step <= step
        sightings = [runs for at, runs in self.sightings if at <= step]
        return self.step < step and not over and bool(sightings) and sightings[-1]


def all_jobs(trace: RolloutTrace) -> list[BackgroundJob]:
    """All of a rollout, in the order in which they began."""
    jobs: list[BackgroundJob] = []
    running: dict[SessionKey, BackgroundJob] = {}
    first = trace.task.hosts[0]
    for step in trace.observed_steps:
        for call in step.calls:
            for job in running.values():
                if _may_have_ended(call, job, trace.task.evaluate.required):
                    job.sightings.append((step.step, False))
            jobs += [
                job
                for job in follow_jobs(call, step.step, running, first)
                if job.ended_in_step is None
            ]
    return jobs


def follow_jobs(
    call: ObservedCall, step: int, running: "dict[SessionKey, BackgroundJob]", first: str
) -> Iterator[BackgroundJob]:
    """Jobs that a call shows to have ended, then one that it leaves running. `running` is kept.

    first: name of the first host.
    """
    for news in _session_news(call, running, first):
        if (job := running.get(news.key)) is not None:
            _note_news(job, news, step)
            if job.ended_in_step is not None:
                yield running.pop(news.key)
    if call.name == RUN_COMMAND and call.fields.get("running") is True:
        key, command = session_of_call(call, first), command_of(call)
        running[key] = BackgroundJob(*key, command, step, sightings=[(step, True)])
        yield running[key]


class SessionKey(NamedTuple):
    """Where a job is."""

    host: str
    """Empty for the first."""
    session: str


class SessionNews(NamedTuple):
    """What a call tells of one session."""

    key: SessionKey
    runs: bool | None = False
    """Whether its command runs still; None where that was not told."""
    code: int | None = None
    """The exit code, where one was seen."""
    killed: bool = False
    """Whether the agent signalled it, or closed its session."""


def _note_news(job: BackgroundJob, news: SessionNews, step: int) -> None:
    job.killed = job.killed or news.killed
    if news.runs is False:
        job.ended_in_step, job.exit_code = step, news.code
    else:
        job.sightings.append((step, news.runs is True))


def _session_news(
    call: ObservedCall, running: dict[SessionKey, BackgroundJob], first: str
) -> Iterator[SessionNews]:
    """What a call tells of sessions: that they run what they ran, or no longer."""
    fields, key = call.fields, session_of_call(call, first)
    runs = fields.get("running")
    match call.kind:
        case "command" if call.name == RUN_COMMAND:
            yield SessionNews(key)  # another command could begin: the one before is over
        case "command" | "status" if isinstance(runs, bool):
            yield SessionNews(key, runs, fields.get("exit_code"))
        case "idle" if isinstance(fields.get("is_idle"), bool):
            yield SessionNews(key, not fields["is_idle"])
        case "killed":
            yield SessionNews(key, runs if isinstance(runs, bool) else None, killed=True)
        case "session" if fields.get("change") not in ("cleared", "found"):
            yield from (SessionNews(key, killed=True) for key in _changed_sessions(call, first))
        case "sessions":
            for entry in _as_list(fields.get("sessions")):
                if isinstance(entry, dict):
                    place = _host_key(str(entry.get("host") or key.host), first)
                    name = SessionKey(place, str(entry.get("session_id")))
                    yield SessionNews(
                        name, bool(entry.get("running", True)), entry.get("exit_code")
                    )
        case "sleep" if isinstance(runs, list | tuple):
            # It tells what ran as the sleep began: who is missing had ended, the others may since.
            still = {_session_key(str(name), "", first) for name in runs}
            yield from [SessionNews(session) for session in running if session not in still]


def renewed_sessions(call: ObservedCall, first: str) -> Iterator[SessionKey]:
    """Sessions that have another shell after a call: opened, closed, or ended by themselves."""
    if call.kind == "session" and call.fields.get("change") not in ("cleared", "found"):
        yield from _changed_sessions(call, first)
    elif call.name == RUN_COMMAND and call.fields.get("end"):
        yield session_of_call(call, first)


def _changed_sessions(call: ObservedCall, first: str) -> Iterator[SessionKey]:
    """Sessions that a call opened or closed."""
    names = _as_list(call.fields.get("closed")) or [call.fields.get("session_id")]
    yield from (_session_key(str(name), host_of_call(call, first), first) for name in names)


def _may_have_ended(call: ObservedCall, job: BackgroundJob, required: tuple[str, ...]) -> bool:
    """Whether a job may have ended by this call though nobody saw it: it waits, or it concerns what
    the job writes, of which the agent then knows more than a rule.
    """
    command = command_of(call)
    if call.name in WAITING_ACTIONS or any(
        program.program == "sleep" for program in shell_commands.parse_command(command).simple
    ):
        return True
    if call.name == EVALUATION:
        return False
    written = {
        *_named_files(job.command),
        *(name_of_path(path.rstrip("/")) for path in required),
    }
    return bool(written & _named_files(f"{command} {call.fields.get('path', '')}"))


def _named_files(command: str) -> set[str]:
    """Names of files, but for scripts, in a command."""
    return {name for name in _FILE_NAME.findall(command) if not name.endswith((".py", ".sh"))}


def _as_list(value: Any) -> Sequence[Any]:
    """A list, or none: another environment may mean something else by a name of ours."""
    return value if isinstance(value, list | tuple) else ()


def _session_key(text: str, host: str, first: str) -> SessionKey:
    """A session as results name it: `gpu:train`; without a host on that of the call."""
    place, colon, session = text.rpartition(":")
    return SessionKey(_host_key(place, first) if colon else host, session)


def _host_key(host: str, first: str) -> str:
    """A host; empty for the first, which calls and results may name or not."""
    return "" if host == first else host


def session_of_call(call: ObservedCall, first: str) -> SessionKey:
    """Where a call acts. first: name of the first host."""
    session = call.fields.get("session_id") or call.arguments.get("session_id", "main")
    return SessionKey(host_of_call(call, first), str(session))
