"""Signals about files: edits of what was not looked at, and long stretches without any change."""

import shlex
from collections.abc import Callable

from houston_daemon.supervision.attention.window import THINKING, CallSeen, Window
from houston_shared.task import Attention

_CHANGES = frozenset({"edited", "replaced"})


def blind_edit(window: Window, limits: Attention) -> str:
    """A file was changed that was not shown since it last changed, or not in the steps before.

    APOLLO's rule (appendix E, priority 5) asks for a look in the step before; thoughts do not
    count as steps. An edit's own observation shows the lines that it wrote, so it is a look.
    """
    now = window.now
    before = [step for step in window.steps[:-1] if not _only_thinks(step.calls)]
    near = before[-limits.blind_edit_steps :] if limits.blind_edit_steps else []
    looked = [call for step in near for call in step.calls]
    for index, call in enumerate(now.calls):
        if not call.success or call.fields.get("change") not in _CHANGES:
            continue
        path = str(call.fields.get("path", ""))
        there = [one for one in (*looked, *now.calls[:index]) if _host(one) == _host(call)]
        kinds = {one.kind for one in there if shows(one, path)}
        if call.fields.get("blind") and "command" not in kinds:
            return f"{path} was changed and not shown since it last changed"
        if limits.blind_edit_steps and not kinds:
            return f"{path} was changed and not looked at in the {_steps(limits.blind_edit_steps)}"
    return ""


def no_change(window: Window, limits: Attention) -> str:
    """No file of the workspace changed for many steps; only where snapshots could tell."""
    count = limits.unchanged_steps
    steps = window.steps[-count:] if count else []
    if not steps or len(steps) < count or any(step.changed is not False for step in steps):
        return ""
    return f"no file changed in the last {_steps(count, '')}"


def shows(call: CallSeen, path: str, same: Callable[[str, str], bool] = str.__eq__) -> bool:
    """Whether a call showed something of a file. same: whether two paths are of one file."""
    if not call.success:
        return False
    if call.kind in ("file", "search"):
        return same(str(call.fields.get("path", "")), path)
    if call.kind == "parsed":  # it shows the text that it has saved
        return same(str(call.fields.get("save_path", "")), path)
    return call.kind == "command" and path.rpartition("/")[2] in _words(call)


def _host(call: CallSeen) -> str:
    """The host that a call names; empty for the first."""
    return str(call.arguments.get("host", ""))


def _words(call: CallSeen) -> set[str]:
    """The file names that a command names."""
    command = str(call.arguments.get("command", ""))
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is never closed
        words = command.split()
    return {word.rpartition("/")[2] for word in words}


def _only_thinks(calls: tuple[CallSeen, ...]) -> bool:
    return all(call.name in THINKING for call in calls)


def _steps(count: int, before: str = " before") -> str:
    return f"step{before}" if count == 1 else f"{count} steps{before}"
