"""Commands that were left running: when each began, when it was seen to run and to have ended, and
how. A job is known by its host and its session.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from houston_daemon.supervision.attention.window import EVALUATION, WAITING, CallSeen
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.history import COMMAND, host
from houston_daemon.supervision.trace import Trace

_FILE = re.compile(r"(?<![\w.-])[\w-][\w.-]*\.[A-Za-z]\w*")
"""A file's name as a command tells it."""


@dataclass(slots=True)
class Job:
    """A command that a step left running in a session."""

    host: str
    """Empty for the first."""
    session: str
    command: str
    step: int
    """The step that started it."""
    end: int | None = None
    """The step that saw it ended; None while it may still run."""
    code: int | None = None
    """Its exit code; None where that was not seen."""
    killed: bool = False
    """Whether the agent ended it."""
    seen: list[tuple[int, bool]] = field(default_factory=list)
    """Steps, in order, each with whether its call showed that it runs (True), or is one after which
    it may have ended (False): a sleep, or a look at what it writes."""

    def known_to_run(self, step: int) -> bool:
        """Whether it ran as this step acted: seen, not left alone since, not seen to end."""
        over = self.end is not None and self.end <= step
        shown = [runs for at, runs in self.seen if at <= step]
        return self.step < step and not over and bool(shown) and shown[-1]


def jobs(trace: Trace) -> list[Job]:
    """All of a rollout, in the order in which they began."""
    found: list[Job] = []
    running: dict[Key, Job] = {}
    first = trace.task.hosts[0]
    for step in trace.seen:
        for call in step.calls:
            for job in running.values():
                if _leaves(call, job, trace.task.evaluate.required):
                    job.seen.append((step.step, False))
            found += [one for one in follow(call, step.step, running, first) if one.end is None]
    return found


def follow(call: CallSeen, step: int, running: "dict[Key, Job]", first: str) -> Iterator[Job]:
    """Jobs that a call shows to have ended, then one that it leaves running. `running` is kept.

    first: name of the first host.
    """
    for news in _news(call, running, first):
        if (its := running.get(news.key)) is not None:
            _note(its, news, step)
            if its.end is not None:
                yield running.pop(news.key)
    if call.name == COMMAND and call.fields.get("running") is True:
        key, command = where(call, first), str(call.arguments.get("command", ""))
        running[key] = Job(*key, command, step, seen=[(step, True)])
        yield running[key]


class Key(NamedTuple):
    """Where a job is."""

    host: str
    """Empty for the first."""
    session: str


class News(NamedTuple):
    """What a call tells of one session."""

    key: Key
    runs: bool | None = False
    """Whether its command runs still; None where that was not told."""
    code: int | None = None
    """The exit code, where one was seen."""
    killed: bool = False
    """Whether the agent signalled it, or closed its session."""


def _note(job: Job, news: News, step: int) -> None:
    job.killed = job.killed or news.killed
    if news.runs is False:
        job.end, job.code = step, news.code
    else:
        job.seen.append((step, news.runs is True))


def _news(call: CallSeen, running: dict[Key, Job], first: str) -> Iterator[News]:
    """What a call tells of sessions: that they run what they ran, or no longer."""
    fields, key = call.fields, where(call, first)
    runs = fields.get("running")
    match call.kind:
        case "command" if call.name == COMMAND:
            yield News(key)  # another command could begin: the one before is over
        case "command" | "status" if isinstance(runs, bool):
            yield News(key, runs, fields.get("exit_code"))
        case "idle" if isinstance(fields.get("is_idle"), bool):
            yield News(key, not fields["is_idle"])
        case "killed":
            yield News(key, runs if isinstance(runs, bool) else None, killed=True)
        case "session" if fields.get("change") not in ("cleared", "found"):
            yield from (News(one, killed=True) for one in _changed(call, first))
        case "sessions":
            for entry in _list(fields.get("sessions")):
                if isinstance(entry, dict):
                    place = _place(str(entry.get("host") or key.host), first)
                    name = Key(place, str(entry.get("session_id")))
                    yield News(name, bool(entry.get("running", True)), entry.get("exit_code"))
        case "sleep" if isinstance(runs, list | tuple):
            # It tells what ran as the sleep began: who is missing had ended, the others may since.
            still = {_named(str(name), "", first) for name in runs}
            yield from [News(one) for one in running if one not in still]


def left(call: CallSeen, first: str) -> Iterator[Key]:
    """Sessions that have another shell after a call: opened, closed, or ended by themselves."""
    if call.kind == "session" and call.fields.get("change") not in ("cleared", "found"):
        yield from _changed(call, first)
    elif call.name == COMMAND and call.fields.get("end"):
        yield where(call, first)


def _changed(call: CallSeen, first: str) -> Iterator[Key]:
    """Sessions that a call opened or closed."""
    names = _list(call.fields.get("closed")) or [call.fields.get("session_id")]
    yield from (_named(str(name), host(call, first), first) for name in names)


def _leaves(call: CallSeen, job: Job, required: tuple[str, ...]) -> bool:
    """Whether a job may have ended by this call though nobody saw it: it waits, or it concerns what
    the job writes, of which the agent then knows more than a rule.
    """
    command = str(call.arguments.get("command", ""))
    if call.name in WAITING or any(one.program == "sleep" for one in shell.read(command).simple):
        return True
    if call.name == EVALUATION:
        return False
    written = {*_files(job.command), *(path.rstrip("/").rpartition("/")[2] for path in required)}
    return bool(written & _files(f"{command} {call.fields.get('path', '')}"))


def _files(command: str) -> set[str]:
    """Names of files, but for scripts, in a command."""
    return {one for one in _FILE.findall(command) if not one.endswith((".py", ".sh"))}


def _list(value: Any) -> Sequence[Any]:
    """A list, or none: another environment may mean something else by a name of ours."""
    return value if isinstance(value, list | tuple) else ()


def _named(text: str, host: str, first: str) -> Key:
    """A session as results name it: `gpu:train`; without a host on that of the call."""
    place, colon, session = text.rpartition(":")
    return Key(_place(place, first) if colon else host, session)


def _place(host: str, first: str) -> str:
    """A host; empty for the first, which calls and results may name or not."""
    return "" if host == first else host


def where(call: CallSeen, first: str) -> Key:
    """Where a call acts. first: name of the first host."""
    session = call.fields.get("session_id") or call.arguments.get("session_id", "main")
    return Key(_place(host(call), first), str(session))
