"""The rule about edits of what was not looked at."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatch

from houston_daemon.supervision.attention.files import shows
from houston_daemon.supervision.attention.window import THINKING, CallSeen, StepSeen
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.changing import can_change
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import COMMAND, host
from houston_daemon.supervision.rules.shell import Simple
from houston_daemon.supervision.trace import Trace
from houston_shared.records import StepRecord
from houston_shared.task_rules import Rules

BESIDE = 5
"""Steps that only look or edit other files which a look at a file outlasts: more, and it may be out
of sight."""
_NAMES = "ls wc stat find file du df tree md5sum sha256sum which test [ [[ basename dirname"
_NO_CONTENT = frozenset(_NAMES.split())
"""Programs that show of a file that it is there, and not what is in it."""
_FILE = re.compile(r"(?<![\w./-])[\w-][\w.-]*\.\w+")
_PATCH = re.compile(r"^--- (?!/dev/null).*\n\+\+\+ (?:b/)?(\S+)", re.M)
_PATHS = re.compile(r"Path\(\s*['\"]([^'\"]+)['\"]\s*\)")
_READS = re.compile(r"open\(\s*['\"]([^'\"]+)['\"]\s*(?:\)|,\s*['\"]r)")
_WRITES = re.compile(r"open\(\s*['\"]([^'\"]+)['\"]\s*,\s*(?:mode=)?['\"](?:w|r\+)")
_UNKNOWN = frozenset("$`")
"""Characters of a path that the shell must expand first."""


def blind_edit(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A file was changed whose contents were not looked at in the step before, as they were then
    (APOLLO, appendix E). Steps between that only look, think, wait or edit other files leave them
    as they were, and are left out of account (at most five). An edit is no look: the next edit of
    the same file is blind; having written the whole file is one, also in the same step or command;
    to open it in the same step is none, as an edit is sampled before that shows anything. A failing
    run that names the place shows it. Edits are also `sed -i`, `patch`, an inline program that
    reads and writes a file, and a here-document over a file that was there; new files, and lines
    that are appended, are none.
    """
    first = trace.task.hosts[0]
    steps = list(zip(trace.steps, trace.seen, strict=True))
    there: set[tuple[str, str]] = set()
    for at, (record, step) in enumerate(steps):
        for path, place, calls in _edited(step, settings.blind_replacements, first, there):
            here = _on(steps[:at], place, first)
            wrote = any(_wrote(call, path) for call in calls)
            if not wrote and not _looked(here, path, settings.blind_edit_steps):
                before = settings.blind_edit_steps
                said = "the step" if before == 1 else f"the {before} steps"
                yield Finding(step.step, f"{path} was changed and not looked at in {said} before")
                break
        there.update(_names(record, step, first))


Shown = tuple[CallSeen, str]
"""A call, and the text of what it showed."""


def _on(
    steps: Sequence[tuple[StepRecord, StepSeen]], place: str, first: str
) -> Iterator[list[Shown]]:
    """Steps that do something, the newest first: of each, what it did on one host."""
    for record, step in reversed(steps):
        if any(call.name not in THINKING for call in step.calls):
            yield [
                (call, result.text)
                for call, result in zip(step.calls, record.results, strict=True)
                if call.name not in THINKING and host(call, first) == place
            ]


def _looked(before: Iterator[list[Shown]], path: str, window: int) -> bool:
    """Whether a step of the window shows the file as it is behind them."""
    left, beside = window, BESIDE
    for shown in before:
        for call, text in reversed(shown):
            if shows_file(call, path, text):
                return True
            if _among(path, _changed(call, replaced=True)):
                return False
        if all(_beside(call) for call, _ in shown) and beside:
            beside -= 1
        else:
            left -= 1
        if not left:
            return False
    return False


def _beside(call: CallSeen) -> bool:
    """Whether a call can change no file, or only one whose name it gives."""
    return call.kind == "file" or not can_change(call) or _views(call)


def _views(call: CallSeen) -> bool:
    return call.name == COMMAND and shell.read(str(call.arguments.get("command", ""))).views


def _names(record: StepRecord, step: StepSeen, first: str) -> Iterator[tuple[str, str]]:
    """Files that a step shows to be there: by host and last part of the name."""
    for call, result in zip(step.calls, record.results, strict=True):
        place = host(call, first)
        if call.kind in ("listing", "found") or any(_lists(one) for one in _simple(call)):
            yield from ((place, name) for name in _FILE.findall(result.text))
        if call.success and (path := str(call.fields.get("path", ""))):
            yield place, path.rpartition("/")[2]
        for one in _simple(call):
            written = (*one.writes, *(one.words[1:] if one.views else ()))
            yield from ((place, path.rpartition("/")[2]) for path in written)


def _lists(one: Simple) -> bool:
    return one.program in ("ls", "find", "tree", "fd") or one.git == "ls-files"


def _edited(
    step: StepSeen, replaced: bool, first: str, there: set[tuple[str, str]]
) -> Iterator[tuple[str, str, list[CallSeen]]]:
    """Files that were there and that a step changed, each with its host and with what the step did
    there before that call."""
    for at, call in enumerate(step.calls):
        place = host(call, first)
        before = [one for one in step.calls[:at] if host(one, first) == place]
        yield from ((path, place, before) for path in _changed(call, replaced, own=False))
        if replaced and call.success:
            texts = shell.read(_command(call)).texts if call.name == COMMAND else ()
            for one in texts:
                if not one.appended and (place, one.path.rpartition("/")[2]) in there:
                    yield one.path, place, before


def _changed(call: CallSeen, replaced: bool, own: bool = True) -> Iterator[str]:
    """own: also what the same command has written whole before."""
    if not call.success:
        return
    kinds = ("edited", "replaced") if replaced else ("edited",)
    if call.fields.get("change") in kinds:
        yield str(call.fields.get("path", ""))
    if call.name == COMMAND:
        written: list[str] = []
        for one in _simple(call):
            for path in (*one.changes, *_patched(one)):
                if not _UNKNOWN & set(path) and (own or not _among(path, written)):
                    yield path
            written += one.writes


def _patched(one: Simple) -> list[str]:
    """Files that a patch, or an inline program that reads them, too, changes."""
    if one.program == "patch" or one.git == "apply":
        return [one.of(path) for path in _PATCH.findall(one.inline)]
    if not one.inline or not one.program.startswith("python"):
        return []
    read = {*_READS.findall(one.inline), *_PATHS.findall(one.inline)}
    written = set(_WRITES.findall(one.inline))
    if ".write_text(" in one.inline and ".read_text(" in one.inline:
        written.update(_PATHS.findall(one.inline))
    return [one.of(path) for path in sorted(read & written)]


def _among(path: str, paths: Iterable[str]) -> bool:
    return any(shell.same(path, one) for one in paths)


def _wrote(call: CallSeen, path: str) -> bool:
    """Whether the agent gave all that is in the file."""
    if call.kind == "file":
        change = call.fields.get("change")
        return change in ("created", "replaced") and shows(call, path, shell.same)
    return call.kind == "command" and any(_among(path, one.writes) for one in _simple(call))


def shows_file(call: CallSeen, path: str, text: str) -> bool:
    """Whether a call showed the file: all of it as it was written, or, where a run of it failed,
    where it fails. What a command shows before it changes the file is not how it is then.
    """
    if call.fields.get("change"):
        return call.fields["change"] != "edited" and shows(call, path, shell.same)
    if call.kind != "command":
        return shows(call, path, shell.same)
    simple = _simple(call)
    changes = [at for at, one in enumerate(simple) if _among(path, (*one.changes, *_patched(one)))]
    behind = simple[changes[-1] + 1 :] if changes else simple
    if any(_among(path, one.writes) for one in behind):
        return True
    if any(_prints(one, path) for one in behind):
        return True
    return not changes and (_fails(call, path) or _places(path, text))


def _prints(one: Simple, path: str) -> bool:
    """Whether a program shows what is in the file, or in all that a pattern names."""
    if one.inline and one.program.startswith("python"):
        return path.rpartition("/")[2] in one.inline
    shown = one.views and one.program not in _NO_CONTENT
    return shown and any(
        shell.same(name, path) or ("*" in name and fnmatch(shell.normal(path), name))
        for name in map(one.of, one.words[1:])
    )


def _fails(call: CallSeen, path: str) -> bool:
    return not call.success and shows(replace(call, success=True), path)


def _places(path: str, text: str) -> bool:
    """Whether a text names lines of the file, as tracebacks, tests and compilers do."""
    name = re.escape(path.rpartition("/")[2])
    return bool(re.search(rf"(?<![\w.-]){name}(?::\d+|\", line \d)", text))


def _command(call: CallSeen) -> str:
    return str(call.arguments.get("command", ""))


def _simple(call: CallSeen) -> tuple[Simple, ...]:
    return shell.read(str(call.arguments.get("command", ""))).simple
