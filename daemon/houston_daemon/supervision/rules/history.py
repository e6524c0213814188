"""What an agent wrote and ran, in order: the files with their contents as far as these are known,
and every run of a script.

Contents are followed through edits of lines; of a file that the agent did not write itself, only
what it put into it is known.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from houston_daemon.supervision.attention.window import CallSeen
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.shell import Simple
from houston_daemon.supervision.trace import Trace
from houston_shared.records import Result

COMMAND = "run_command"


@dataclass(frozen=True, slots=True)
class Wrote:
    """A file as it was after a call that wrote it."""

    step: int
    host: str
    """The host that the call names; empty for the first."""
    path: str
    content: str
    """All of it, or what is known of it."""
    put: str
    """What this call put into it."""
    how: str
    """`created`, `replaced`, `edited`, or `shell` for a here-document."""

    @property
    def name(self) -> str:
        """Without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """A simple command of a call that runs commands."""

    step: int
    host: str
    simple: Simple
    command: str
    """The whole command."""
    seen: CallSeen
    result: Result

    @property
    def script(self) -> str:
        """The script that it runs; empty for other programs."""
        return self.simple.script


Event = Wrote | Ran


def history(trace: Trace) -> list[Event]:
    """Everything that was written and run."""
    files: dict[tuple[str, str], str] = {}
    return [
        event
        for record, seen in zip(trace.steps, trace.seen, strict=True)
        for result, call in zip(record.results, seen.calls, strict=True)
        for event in _events(record.step, call, result, files)
    ]


def host(call: CallSeen) -> str:
    """The host that a call names; empty for the first."""
    return str(call.arguments.get("host", ""))


def follow(events: list[Event], fault: Callable[[Wrote], str]) -> Iterator[Finding]:
    """Writing a faulty file, and every run of it until it is mended.

    fault: what is wrong with a file, in words; empty where nothing is.
    """
    faulty: dict[tuple[str, str], tuple[int, str]] = {}
    for event in events:
        if isinstance(event, Wrote):
            key = (event.host, shell.normal(event.path))
            faulty.pop(key, None)
            if why := fault(event):
                faulty[key] = (event.step, why)
                yield Finding(event.step, f"{event.path} {why}")
        elif event.script:
            for (_, path), (step, why) in faulty.items():
                if shell.same(event.script, path):
                    yield Finding(event.step, f"runs {path} of step {step}, which {why}")


def _events(
    step: int, call: CallSeen, result: Result, files: dict[tuple[str, str], str]
) -> Iterator[Event]:
    if call.name == COMMAND and call.kind == "command":
        text = str(call.arguments.get("command", ""))
        command, place = shell.read(text), host(call)
        for one in command.texts:
            key = (place, one.path)
            files[key] = (files.get(key, "") if one.appended else "") + one.content
            yield Wrote(step, place, one.path, files[key], one.content, "shell")
        for simple in command.simple:
            yield Ran(step, place, simple, text, call, result)
    elif call.success and call.fields.get("change"):
        yield _written(step, call, files)


def _written(step: int, call: CallSeen, files: dict[tuple[str, str], str]) -> Wrote:
    path = shell.normal(str(call.fields.get("path", "")))
    put, how = str(call.arguments.get("content", "")), str(call.fields["change"])
    key = (host(call), path)
    if how == "edited":
        files[key] = _edited(files.get(key), call, put)
    else:
        files[key] = put
    return Wrote(step, key[0], path, files[key], put, how)


def _edited(before: str | None, call: CallSeen, put: str) -> str:
    """A file after lines of it were replaced; where it is not known, what was put into it."""
    start, end = call.arguments.get("start"), call.arguments.get("end")
    if before is None or not isinstance(start, int) or not isinstance(end, int):
        return f"{before or ''}{put}\n"
    lines = before.splitlines()
    if start > len(lines) + 1:  # not from its first line: only pieces of it are known
        return f"{before}{put}\n"
    lines[start - 1 : end] = put.splitlines()
    return "".join(f"{line}\n" for line in lines)
