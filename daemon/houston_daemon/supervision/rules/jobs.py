"""Commands that were left running: when each began, when it was seen to have ended, and how."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from houston_daemon.supervision.attention.window import CallSeen
from houston_daemon.supervision.rules.history import COMMAND, host
from houston_daemon.supervision.trace import Trace


@dataclass(slots=True)
class Job:
    """A command that a step left running in a session."""

    host: str
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


def jobs(trace: Trace) -> list[Job]:
    """All of a rollout, in the order in which they began."""
    found: list[Job] = []
    running: dict[tuple[str, str], Job] = {}
    for step in trace.seen:
        for call in step.calls:
            for key, code, killed in _news(call, running):
                if (job := running.get(key)) is None:
                    continue
                job.killed = job.killed or killed == "killed"
                if killed != "killed":
                    job.end, job.code = step.step, code
                    del running[key]
            if call.name == COMMAND and call.fields.get("running") is True:
                command = str(call.arguments.get("command", ""))
                job = Job(host(call), _session(call), command, step.step)
                running[_key(call)] = job
                found.append(job)
    return found


Key = tuple[str, str]
News = tuple[Key, int | None, str]
"""A session, an exit code where one was seen, and `killed` where its command was only signalled."""


def _news(call: CallSeen, running: dict[Key, Job]) -> Iterator[News]:
    """What a call tells of sessions that no longer run what they ran."""
    fields, key = call.fields, _key(call)
    match call.kind:
        case "command" if call.name == COMMAND:
            yield key, None, ""  # another command could begin: the one before is over
        case "command" | "status" if fields.get("running") is False:
            yield key, fields.get("exit_code"), ""
        case "idle" if fields.get("is_idle") is True:
            yield key, None, ""
        case "killed":
            yield key, None, "killed"
            if fields.get("running") is False:
                yield key, None, ""
        case "session":
            names = _list(fields.get("closed")) or [fields.get("session_id")]
            gone = fields.get("change") != "cleared" and fields.get("change") != "found"
            for one in list(running) if gone else ():
                if one[1] in names:
                    yield one, None, "killed"
                    yield one, None, ""
        case "sessions":
            for entry in _list(fields.get("sessions")):
                if isinstance(entry, dict) and not entry.get("running", True):
                    here = (str(entry.get("host", "")) or key[0], str(entry.get("session_id")))
                    yield here, entry.get("exit_code"), ""
        case "sleep" if isinstance(fields.get("running"), list | tuple):
            still = {str(name).partition(" on ")[0] for name in fields["running"]}
            for one in list(running):
                if one[1] not in still:
                    yield one, None, ""


def _list(value: Any) -> Sequence[Any]:
    """A list, or none: another environment may mean something else by a name of ours."""
    return value if isinstance(value, list | tuple) else ()


def _key(call: CallSeen) -> Key:
    return host(call), _session(call)


def _session(call: CallSeen) -> str:
    return str(call.fields.get("session_id") or call.arguments.get("session_id", "main"))
