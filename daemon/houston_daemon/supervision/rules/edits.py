"""The rule about edits of what was not looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from houston_daemon.supervision.attention.files import shows
from houston_daemon.supervision.attention.window import THINKING, CallSeen, StepSeen
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import COMMAND, host
from houston_daemon.supervision.trace import Trace
from houston_shared.task_rules import Rules

_IN_PLACE = frozenset({"sed", "perl"})


def blind_edit(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A file was changed whose contents were not looked at in the step before, as they were then
    (APOLLO, appendix E). An edit is no look: the next edit of the same file is blind; having
    written the whole file is one. Steps that only think are left out of account; new files, and
    lines that are appended, are no edits.
    """
    for at, step in enumerate(trace.seen):
        for path, place in _edited(step, settings.blind_replacements):
            if not _looked(trace.seen, at, path, place, settings.blind_edit_steps):
                before = settings.blind_edit_steps
                said = "the step" if before == 1 else f"the {before} steps"
                yield Finding(step.step, f"{path} was changed and not looked at in {said} before")
                break


def _looked(seen: Sequence[StepSeen], at: int, path: str, place: str, window: int) -> bool:
    """Whether a step of the window shows the file as it is when step number `at` begins."""
    left = window
    for step in reversed(seen[:at]):
        acts = [call for call in step.calls if call.name not in THINKING]
        if not acts:
            continue
        if left == 0:
            return False
        left -= 1
        for call in reversed(acts):
            if host(call) != place:
                continue
            if _shows(call, path):
                return True
            if any(shell.same(path, one) for one in _changed(call, replaced=True)):
                return False
    return False


def _edited(step: StepSeen, replaced: bool) -> Iterator[tuple[str, str]]:
    """Files that were there and that a step changed, each with its host."""
    for call in step.calls:
        yield from ((path, host(call)) for path in _changed(call, replaced))


def _changed(call: CallSeen, replaced: bool) -> Iterator[str]:
    if not call.success:
        return
    kinds = ("edited", "replaced") if replaced else ("edited",)
    if call.fields.get("change") in kinds:
        yield str(call.fields.get("path", ""))
    if call.name == COMMAND:
        for one in shell.read(str(call.arguments.get("command", ""))).simple:
            if one.program in _IN_PLACE and not one.views and "-i" in " ".join(one.words):
                yield from (word for word in one.words[2:] if "." in word.rpartition("/")[2][1:-1])


def _shows(call: CallSeen, path: str) -> bool:
    """Whether a call showed the file: all of it as it was written, or, where a run of it failed,
    where it fails.
    """
    if call.fields.get("change"):
        return call.fields["change"] != "edited" and shows(call, path)
    command = call.kind == "command"
    if command and any(shell.same(path, one) for one in _changed(call, replaced=True)):
        return False
    return shows(replace(call, success=True) if command else call, path)
