"""What a text says of a program that failed, and which programs of the background it says it of.

Words of well-known programs only: what an agent's own program prints of errors is its output. A
program that runs apart from the sessions is known by the file that its output goes to.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from houston_daemon.supervision.attention.files import shows
from houston_daemon.supervision.attention.waiting import starts_apart
from houston_daemon.supervision.attention.window import CallSeen, cut
from houston_daemon.supervision.rules import exit_codes, shell
from houston_daemon.supervision.rules.history import COMMAND, host
from houston_daemon.supervision.trace import Trace
from houston_shared.records import Result

STOPPED = "KeyboardInterrupt"
_TRACED = "Traceback (most recent call last):"
_TRACEBACK = re.compile(r"^(?:\d+[\t:-])?Traceback \(most recent call last\):$", re.M)
"""Also with the number of a line, as `open_file` and `grep -n` show it."""
_RAISED = re.compile(r"^(?:\d+[\t:-])?(\w[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.M)
_SHELL = re.compile(
    r"^(?:/\S+/)?(?:ba|z|da)?sh: .*(?:command not found|No such file or directory|"
    r"Permission denied|syntax error).*$",
    re.M,
)
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: .*|:)?")
_BATCH = re.compile(r"^Submitted batch job (\d+)", re.M)
_ENDED = r"Segmentation fault|Killed|Aborted|Bus error|Illegal instruction"
_PROGRAMS = re.compile(
    r"^(?:\S+: error: (?:unrecognized arguments|the following arguments|argument |invalid choice)"
    r"|make(?:\[\d+\])?: \*\*\* |fatal: |npm ERR! |npm error |E: |error: subprocess-exited-with"
    r"|ERROR: (?:Could not|No matching|Failed building|Cannot install|Invalid requirement)"
    rf"|(?:\S+: line \d+: +)?(?:\d+ )?(?:{_ENDED})(?: |$)).*$",
    re.M,
)
"""make, git, npm, apt, pip, argparse, and the shell of a program that a signal ended."""
_MARKS = (": error: ", "error: sub", "***", "fatal: ", "npm ", "E: ", "ERROR: ", *_ENDED.split("|"))
"""What such a line has in it: most texts have none of them."""
_JOB = re.compile(
    rf"^\[\d+\][-+]? +(?:Exit (?P<code>\d+)|{_ENDED}).*? {{2,}}(?P<command>\S.*)$", re.M
)
"""How a shell tells that a job of the background ended."""
_NO_LOG = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


def raised(text: str) -> str:
    """The last line of the last traceback; empty where there is none."""
    if _TRACED not in text:
        return ""
    begin = next((found.end() for found in _TRACEBACK.finditer(text)), None)
    if begin is None:
        return ""
    found = _RAISED.findall(text, begin)
    return cut(found[-1]) if found else "a traceback"


def last_line(text: str) -> str:
    """The exception that a text ends with, where a pipe has cut its traceback off; else empty."""
    last = text.rstrip().rpartition("\n")[2]
    return cut(last) if _EXCEPTION.fullmatch(last) else ""


def printed(text: str) -> str:
    """What a text says of a program that failed; empty where it says nothing of the kind."""
    if why := raised(text):
        return "" if why == STOPPED else why
    found = _SHELL.search(text) if "sh: " in text else None
    if found is None and any(mark in text for mark in _MARKS):
        found = _PROGRAMS.search(text)
    return cut(found[0].strip()) if found else ""


MOST = 20
"""Programs in the background that are followed at once, the newest."""


class Apart(NamedTuple):
    """A command that left a program running apart from the sessions."""

    step: int
    host: str
    command: str
    logs: tuple[str, ...]
    """Files that its output goes to."""


def died_apart(trace: Trace) -> Iterator[tuple[int, str]]:
    """Steps that started a program in the background which failed, as its log or the shell showed
    later; with what was shown."""
    first = trace.task.hosts[0]
    running: list[Apart] = []
    for record, seen in zip(trace.steps, trace.seen, strict=True):
        for result, call in zip(record.results, seen.calls, strict=True):
            for one, why in follow_apart(call, result, record.step, running, first):
                yield one.step, f"{cut(one.command)}: it failed (step {record.step}): {why}"


def follow_apart(
    call: CallSeen, result: Result, step: int, running: list[Apart], first: str
) -> Iterator[tuple[Apart, str]]:
    """Programs in the background that a call shows to have failed, with what it shows.

    running: those that were started before, which is kept. first: name of the first host.
    """
    place = host(call, first)
    command = str(call.arguments.get("command", ""))
    running[:] = [one for one in running if not exit_codes.stops(command, one.command)]
    if running and (told := _told(call, result)):
        for one in [one for one in reversed(running) if one.host == place]:
            if why := told(one):
                running.remove(one)
                yield one, why
    if started := _started(step, place, call, result.text):
        kept = [one for one in running if not set(one.logs) & set(started.logs)]
        running[:] = [*kept[-MOST:], started]


def _told(call: CallSeen, result: Result) -> Callable[[Apart], str] | None:
    """What a call tells of programs in the background, as a function of one; None for nothing."""
    ended = list(_JOB.finditer(result.text)) if "]" in result.text else []
    shown = call.kind == "file" or (call.kind == "command" and _views(call))
    why = printed(result.text) if shown else ""
    if not ended and not why:
        return None

    def of(one: Apart) -> str:
        for found in ended:
            if found["command"].strip() in one.command:
                return cut(found[0])
        return why if any(shows(call, path, shell.same) for path in one.logs) else ""

    return of


def _views(call: CallSeen) -> bool:
    return shell.read(str(call.arguments.get("command", ""))).views


def _started(step: int, place: str, call: CallSeen, text: str) -> Apart | None:
    command = str(call.arguments.get("command", ""))
    if call.name != COMMAND or not call.success or not starts_apart(command):
        return None
    read = shell.read(command).simple
    logs = [path for one in read if not one.views for path in (*one.outputs, *one.writes)]
    logs += [path for one in read if one.program == "tee" for path in one.writes]
    logs += [f"slurm-{number}.out" for number in _BATCH.findall(text)]
    if not logs and "nohup" in command:
        logs = ["nohup.out"]
    return Apart(step, place, command, tuple(path for path in logs if path not in _NO_LOG))
