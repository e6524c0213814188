"""Which scripts the task gives, as far as the rollout shows it, and which the agent made itself.

What a listing shows is given only where nothing before could have made it: programs write files
that no rule can follow, so after the first of them a script that is seen is nobody's.
"""

import re
from collections.abc import Iterator

from houston_daemon.supervision.attention.waiting import starts_apart
from houston_daemon.supervision.attention.window import CallSeen, StepSeen
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.changing import can_change
from houston_daemon.supervision.rules.history import COMMAND
from houston_daemon.supervision.trace import Trace
from houston_shared.records import StepRecord
from houston_shared.task_rules import Rules

SCRIPT = re.compile(r"(?<![\w./-])[\w./-]*\w\.(?:py|sh)\b")
"""The path of a script."""
_TO = re.compile(r"(?:(?<!>)>|\btee)[ \t]*[\"']?([\w./-]+\.(?:py|sh))\b")
"""A script that the shell writes, not one to which it appends."""
_COPIES = frozenset({"cp", "mv", "ln", "install"})
_OUTSIDE = re.compile(r"(?<![\w.])(?:/(?!workspace\b|dev/null\b)|~|\.\./)")
"""A place that no snapshot shows."""


def provided(trace: Trace, settings: Rules) -> dict[str, str]:
    """File names, each with a path: scripts that the settings name, that the instructions name and
    the agent did not create, or that were shown before anything could have made them.
    """
    created = {path for one in trace.steps for path in _created(one)}
    named = map(shell.normal, SCRIPT.findall(trace.instructions))
    told = [path for path in named if not any(there(one, path) for one in created)]
    found = {file_name(path): shell.normal(path) for path in (*settings.provided, *told)}
    for path in _first_shown(trace):
        found.setdefault(file_name(path), shell.normal(path))
    return found


def file_name(path: str) -> str:
    """A path's last part."""
    return path.rpartition("/")[2]


def there(path: str, script: str) -> bool:
    """Whether a path is that of a script."""
    return path == script or path.endswith(f"/{script}")


def _first_shown(trace: Trace) -> Iterator[str]:
    """Scripts that were shown while nothing could have made them."""
    own: set[str] = set()
    for record, seen in zip(trace.steps, trace.seen, strict=True):
        own |= {file_name(path) for path in _created(record)}
        for result, call in zip(record.results, seen.calls, strict=True):
            if _may_make(call, seen):
                return  # also what it shows itself may be what it has just made
            if call.success:
                yield from (
                    path for path in _shown(call, result.text) if file_name(path) not in own
                )


def _created(record: StepRecord) -> Iterator[str]:
    """Scripts that a step made, in the workspace and as far as its words and its snapshot say."""
    closed = record.observation
    changes = {shell.normal(one.path): one.kind for one in (closed.files if closed else ())}
    yield from (path for path, kind in changes.items() if kind == "added")
    for result in record.results:
        if result.success and result.fields.get("change") == "created":
            yield shell.normal(str(result.fields.get("path", "")))
        if result.call.name == COMMAND:
            paths = map(shell.normal, _written(str(result.call.arguments.get("command", ""))))
            yield from (path for path in paths if changes.get(path) != "changed")


def _written(command: str) -> Iterator[str]:
    """Scripts that a command line names as what it writes."""
    yield from _TO.findall(command)
    if any(program in command for program in _COPIES):
        for one in shell.read(command).simple:
            *sources, last = one.words or ("",)
            copied = one.program in _COPIES and last.endswith((".py", ".sh"))
            if copied and file_name(last) not in map(file_name, sources):  # else it was there
                yield last


def _may_make(call: CallSeen, step: StepSeen) -> bool:
    """Whether a call could have made scripts whose names it does not tell."""
    if call.kind in ("file", "parsed") or not can_change(call):
        return False
    command = str(call.arguments.get("command", ""))
    ended = call.fields.get("running") is not True and not starts_apart(command)
    return not (step.changed is False and ended and not _OUTSIDE.search(command))


def _shown(call: CallSeen, text: str) -> list[str]:
    """Scripts that an observation shows to be there."""
    path = str(call.fields.get("path", ""))
    if call.kind == "file":
        return [] if call.fields.get("change") else SCRIPT.findall(path)
    if ".py" not in text and ".sh" not in text:
        return []
    if call.kind in ("listing", "found"):
        folder = f"{path}/" if call.kind == "listing" and path not in (".", "") else ""
        return [f"{folder}{one}" for one in SCRIPT.findall(text)]
    if call.kind == "command":
        simple = shell.read(str(call.arguments.get("command", ""))).simple
        if any(one.program in ("ls", "find", "tree") for one in simple):
            return SCRIPT.findall(text.partition("\n")[2])
    return []
