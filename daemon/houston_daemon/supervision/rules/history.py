"""What an agent wrote and ran, in order: the files with their contents as far as these are known,
and every run of a script.

Contents are followed through edits of lines; of a file that the agent did not write itself, only
what it put into it is known. What a shell script of the agent's runs, is run by who runs that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

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
    """Empty for the first."""
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
    source: Wrote | None = None
    """The script that it runs, where the agent wrote that."""
    within: Wrote | None = None
    """The agent's shell script whose line it is; None where the call gives it."""

    @property
    def script(self) -> str:
        """The script that it runs; empty for other programs."""
        return self.simple.script


Event = Wrote | Ran
Files = dict[tuple[str, str], Wrote]
"""By host and path, the newest state of a file."""


def history(trace: Trace) -> list[Event]:
    """Everything that was written and run."""
    files: Files = {}
    first = trace.task.hosts[0]
    return [
        event
        for record, seen in zip(trace.steps, trace.seen, strict=True)
        for result, call in zip(record.results, seen.calls, strict=True)
        for event in _events(record.step, call, result, host(call, first), files)
    ]


def host(call: CallSeen, first: str = "") -> str:
    """The host that a call names; empty for the first, whose name is `first`."""
    name = str(call.arguments.get("host", ""))
    return "" if name == first else name


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


def _events(step: int, call: CallSeen, result: Result, place: str, files: Files) -> Iterator[Event]:
    if call.name == COMMAND and call.kind == "command":
        text = str(call.arguments.get("command", ""))
        command = shell.read(text)
        for one in command.texts:
            before = files.get((place, one.path)) if one.appended else None
            content = (before.content if before else "") + one.content
            yield _kept(Wrote(step, place, one.path, content, one.content, "shell"), files)
        for simple in command.simple:
            source = _source(place, simple.script, files)
            ran = Ran(step, place, simple, text, call, result, source)
            yield ran
            yield from _inside(ran, files)
    elif call.success and call.fields.get("change"):
        yield _written(step, call, place, files)


def _inside(ran: Ran, files: Files) -> Iterator[Ran]:
    """The lines of a shell script that the agent wrote; scripts within those are not read."""
    if ran.source is None or not ran.script.endswith(".sh"):
        return
    for one in shell.read(ran.source.content).simple:
        simple = one._replace(environment={**ran.simple.environment, **one.environment})
        source = _source(ran.host, simple.script, files)
        yield replace(ran, simple=simple, source=source, within=ran.source)


def _source(host: str, script: str, files: Files) -> Wrote | None:
    """The agent's own file that a script is; the newest where several may be."""
    if not script:
        return None
    there = (one for (place, _), one in reversed(files.items()) if place == host)
    return next((one for one in there if shell.same(one.path, script)), None)


def _written(step: int, call: CallSeen, place: str, files: Files) -> Wrote:
    path = shell.normal(str(call.fields.get("path", "")))
    put, how = str(call.arguments.get("content", "")), str(call.fields["change"])
    before = files.get((place, path))
    content = put
    if how == "edited":
        content = _edited(before.content if before else None, call, put)
    return _kept(Wrote(step, place, path, content, put, how), files)


def _kept(wrote: Wrote, files: Files) -> Wrote:
    """The newest state of its file, behind all others."""
    files.pop((wrote.host, wrote.path), None)
    files[wrote.host, wrote.path] = wrote
    return wrote


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
