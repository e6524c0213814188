"""The rule about edits of what was not looked at."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from houston_daemon.supervision.attention.files import shows
from houston_daemon.supervision.attention.window import THINKING, CallSeen, StepSeen
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import COMMAND, host
from houston_daemon.supervision.rules.shell import Simple
from houston_daemon.supervision.trace import Trace
from houston_shared.task_rules import Rules

_UNKNOWN = frozenset("$`")
"""Characters of a path that the shell must expand first."""


def blind_edit(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A file was changed whose contents were not looked at in the step before, as they were then
    (APOLLO, appendix E). An edit is no look: the next edit of the same file is blind; having
    written the whole file is one, also in the same step or command; to open it in the same step is
    none, as an edit is sampled before that shows anything. Steps that only think are left out of
    account; new files, and lines that are appended, are no edits.
    """
    first = trace.task.hosts[0]
    for at, step in enumerate(trace.seen):
        for path, place, calls in _edited(step, settings.blind_replacements, first):
            here = _on(trace.seen[:at], place, first)
            wrote = any(_wrote(call, path) for call in calls)
            if not wrote and not _looked(here, path, settings.blind_edit_steps):
                before = settings.blind_edit_steps
                said = "the step" if before == 1 else f"the {before} steps"
                yield Finding(step.step, f"{path} was changed and not looked at in {said} before")
                break


def _on(seen: Sequence[StepSeen], place: str, first: str) -> Iterator[list[CallSeen]]:
    """Steps that do something, the newest first: of each, what it did on one host."""
    for step in reversed(seen):
        if acts := [call for call in step.calls if call.name not in THINKING]:
            yield [call for call in acts if host(call, first) == place]


def _looked(before: Iterator[list[CallSeen]], path: str, window: int) -> bool:
    """Whether a step of the window shows the file as it is behind them."""
    for calls in islice(before, window):
        for call in reversed(calls):
            if _shows(call, path):
                return True
            if _among(path, _changed(call, replaced=True)):
                return False
    return False


def _edited(
    step: StepSeen, replaced: bool, first: str
) -> Iterator[tuple[str, str, list[CallSeen]]]:
    """Files that were there and that a step changed, each with its host and with what the step did
    there before that call."""
    for at, call in enumerate(step.calls):
        place = host(call, first)
        before = [one for one in step.calls[:at] if host(one, first) == place]
        yield from ((path, place, before) for path in _changed(call, replaced, own=False))


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
            for path in one.changes:
                if not _UNKNOWN & set(path) and (own or not _among(path, written)):
                    yield path
            written += one.writes


def _among(path: str, paths: Iterable[str]) -> bool:
    return any(shell.same(path, one) for one in paths)


def _wrote(call: CallSeen, path: str) -> bool:
    """Whether the agent gave all that is in the file."""
    if call.kind == "file":
        change = call.fields.get("change")
        return change in ("created", "replaced") and shows(call, path, shell.same)
    return call.kind == "command" and any(_among(path, one.writes) for one in _simple(call))


def _shows(call: CallSeen, path: str) -> bool:
    """Whether a call showed the file: all of it as it was written, or, where a run of it failed,
    where it fails. What a command shows before it changes the file is not how it is then.
    """
    if call.fields.get("change"):
        return call.fields["change"] != "edited" and shows(call, path, shell.same)
    if call.kind != "command":
        return shows(call, path, shell.same)
    simple = _simple(call)
    changes = [at for at, one in enumerate(simple) if _among(path, one.changes)]
    behind = simple[changes[-1] + 1 :] if changes else simple
    if any(_among(path, one.writes) for one in behind):
        return True
    if not changes:
        return shows(replace(call, success=True), path)
    return any(_among(path, map(one.of, one.words[1:])) for one in behind if one.views)


def _simple(call: CallSeen) -> tuple[Simple, ...]:
    return shell.read(str(call.arguments.get("command", ""))).simple
