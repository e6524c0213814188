"""The rule of edits of files that were not looked at in the step before (APOLLO, appendix E).

It follows which files a step shows, lists, writes and changes, also by `sed -i`, `patch`,
here-documents and inline programs. New files and appended lines are no blind edits.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatch

from houston_daemon.review.attention_signals import shows_path
from houston_daemon.review.attention_window import (
    THINKING_ACTIONS,
    ObservedCall,
    ObservedStep,
    host_of_call,
)
from houston_daemon.review.rollout_trace import RolloutTrace, RuleFinding
from houston_daemon.review.rules import shell_commands
from houston_daemon.review.rules.shell_commands import SimpleCommand, name_of_path
from houston_daemon.review.rules.written_files import (
    RUN_COMMAND,
    can_change_files,
    parsed_command,
)
from houston_shared.records import StepRecord
from houston_shared.task_tables import RuleSettings

MAX_UNRELATED_STEPS = 5
"""Steps that only look or edit other files which a look at a file outlasts: more, and it may be out
of sight."""
_LISTING_NAMES = "ls wc stat find file du df tree md5sum sha256sum which test [ [[ basename dirname"
_LISTING_PROGRAMS = frozenset(_LISTING_NAMES.split())
"""Programs that show of a file that it is there, and not what is in it."""
_FILE_NAME = re.compile(r"(?<![\w./-])[\w-][\w.-]*\.\w+")
_PATCHED_FILE = re.compile(r"^--- (?!/dev/null).*\n\+\+\+ (?:b/)?(\S+)", re.M)
_PATHLIB_PATH = re.compile(r"Path\(\s*['\"]([^'\"]+)['\"]\s*\)")
_OPENED_TO_READ = re.compile(r"open\(\s*['\"]([^'\"]+)['\"]\s*(?:\)|,\s*['\"]r)")
_OPENED_TO_WRITE = re.compile(r"open\(\s*['\"]([^'\"]+)['\"]\s*,\s*(?:mode=)?['\"](?:w|r\+)")
_SHELL_EXPANSION = frozenset("$`")
"""Characters of a path that the shell must expand first."""


def blind_edit(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
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
    steps = trace.pairs
    existing: set[tuple[str, str]] = set()
    for at, (record, step) in enumerate(steps):
        for path, place, calls in _edited_files(step, settings.blind_replacements, first, existing):
            earlier = _steps_on_host(steps[:at], place, first)
            file_write = any(_wrote_whole_file(call, path) for call in calls)
            if not file_write and not _was_looked_at(earlier, path, settings.blind_edit_steps):
                before = settings.blind_edit_steps
                span = "the step" if before == 1 else f"the {before} steps"
                yield RuleFinding(
                    step.step, f"{path} was changed and not looked at in {span} before"
                )
                break
        existing.update(_files_shown_to_exist(record, step, first))


CallWithText = tuple[ObservedCall, str]
"""A call, and the text of what it showed."""


def _steps_on_host(
    steps: Sequence[tuple[StepRecord, ObservedStep]], place: str, first: str
) -> Iterator[list[CallWithText]]:
    """Steps that do something, the newest first: of each, what it did on one host."""
    for record, step in reversed(steps):
        if any(call.name not in THINKING_ACTIONS for call in step.calls):
            yield [
                (call, result.text)
                for call, result in zip(step.calls, record.results, strict=True)
                if call.name not in THINKING_ACTIONS and host_of_call(call, first) == place
            ]


def _was_looked_at(before: Iterator[list[CallWithText]], path: str, window: int) -> bool:
    """Whether a step of the window shows the file as it is behind them."""
    steps_left, unrelated_left = window, MAX_UNRELATED_STEPS
    for earlier_calls in before:
        for call, text in reversed(earlier_calls):
            if shows_file(call, path, text):
                return True
            if _is_among(path, _changed_paths(call, replaced=True)):
                return False
        if all(_changes_other_files(call) for call, _ in earlier_calls) and unrelated_left:
            unrelated_left -= 1
        else:
            steps_left -= 1
        if not steps_left:
            return False
    return False


def _changes_other_files(call: ObservedCall) -> bool:
    """Whether a call can change no file, or only one whose name it gives."""
    only_views = call.name == RUN_COMMAND and parsed_command(call).views
    return call.kind == "file" or not can_change_files(call) or only_views


def _files_shown_to_exist(
    record: StepRecord, step: ObservedStep, first: str
) -> Iterator[tuple[str, str]]:
    """Files that a step shows to be there: by host and last part of the name."""
    for call, result in zip(step.calls, record.results, strict=True):
        place = host_of_call(call, first)
        programs = parsed_command(call).simple
        if call.kind in ("listing", "found") or any(map(_lists_files, programs)):
            yield from ((place, name) for name in _FILE_NAME.findall(result.text))
        if call.success and (path := str(call.fields.get("path", ""))):
            yield place, name_of_path(path)
        for program in programs:
            written = (*program.writes, *(program.words[1:] if program.views else ()))
            yield from ((place, name_of_path(path)) for path in written)


def _lists_files(simple: SimpleCommand) -> bool:
    return simple.program in ("ls", "find", "tree", "fd") or simple.git == "ls-files"


def _edited_files(
    step: ObservedStep, replaced: bool, first: str, existing: set[tuple[str, str]]
) -> Iterator[tuple[str, str, list[ObservedCall]]]:
    """Files that were there and that a step changed, each with its host and with what the step did
    there before that call."""
    for at, call in enumerate(step.calls):
        place = host_of_call(call, first)
        before = [earlier for earlier in step.calls[:at] if host_of_call(earlier, first) == place]
        yield from ((path, place, before) for path in _changed_paths(call, replaced, own=False))
        if replaced and call.success and call.name == RUN_COMMAND:
            for text in parsed_command(call).texts:
                if not text.appended and (place, name_of_path(text.path)) in existing:
                    yield text.path, place, before


def _changed_paths(call: ObservedCall, replaced: bool, own: bool = True) -> Iterator[str]:
    """own: also what the same command has written whole before."""
    if not call.success:
        return
    kinds = ("edited", "replaced") if replaced else ("edited",)
    if call.fields.get("change") in kinds:
        yield str(call.fields.get("path", ""))
    if call.name == RUN_COMMAND:
        written: list[str] = []
        for program in parsed_command(call).simple:
            for path in _paths_changed_by(program):
                if not _SHELL_EXPANSION & set(path) and (own or not _is_among(path, written)):
                    yield path
            written += program.writes


def _paths_changed_by(simple: SimpleCommand) -> list[str]:
    """Files that a program changes in place, a patch, or an inline program that reads them, too."""
    if simple.program == "patch" or simple.git == "apply":
        return [simple.path_in_folder(path) for path in _PATCHED_FILE.findall(simple.inline)]
    if not simple.inline or not simple.program.startswith("python"):
        return list(simple.changes)
    readable = {*_OPENED_TO_READ.findall(simple.inline), *_PATHLIB_PATH.findall(simple.inline)}
    written = set(_OPENED_TO_WRITE.findall(simple.inline))
    if ".write_text(" in simple.inline and ".read_text(" in simple.inline:
        written.update(_PATHLIB_PATH.findall(simple.inline))
    return [simple.path_in_folder(path) for path in sorted(readable & written)]


def _is_among(path: str, paths: Iterable[str]) -> bool:
    return any(shell_commands.same_path(path, other_path) for other_path in paths)


def _wrote_whole_file(call: ObservedCall, path: str) -> bool:
    """Whether the agent gave all that is in the file."""
    if call.kind == "file":
        change = call.fields.get("change")
        return change in ("created", "replaced") and shows_path(
            call, path, shell_commands.same_path
        )
    return call.kind == "command" and any(
        _is_among(path, program.writes) for program in parsed_command(call).simple
    )


def shows_file(call: ObservedCall, path: str, text: str) -> bool:
    """Whether a call showed the file, wrote all of it, or, in a failed run of it, showed where it
    fails. What a command shows before it changes the file does not count.
    """
    if call.fields.get("change"):
        return call.fields["change"] != "edited" and shows_path(
            call, path, shell_commands.same_path
        )
    if call.kind != "command":
        return shows_path(call, path, shell_commands.same_path)
    simple = parsed_command(call).simple
    changes = [
        at for at, program in enumerate(simple) if _is_among(path, _paths_changed_by(program))
    ]
    behind = simple[changes[-1] + 1 :] if changes else simple
    if any(_is_among(path, program.writes) or _prints_file(program, path) for program in behind):
        return True
    return not changes and (_failed_on_file(call, path) or _names_line_of(path, text))


def _prints_file(simple: SimpleCommand, path: str) -> bool:
    """Whether a program shows what is in the file, or in all that a pattern names."""
    if simple.inline and simple.program.startswith("python"):
        return name_of_path(path) in simple.inline
    is_view = simple.views and simple.program not in _LISTING_PROGRAMS
    return is_view and any(
        shell_commands.same_path(name, path)
        or ("*" in name and fnmatch(shell_commands.normal_path(path), name))
        for name in map(simple.path_in_folder, simple.words[1:])
    )


def _failed_on_file(call: ObservedCall, path: str) -> bool:
    return not call.success and shows_path(replace(call, success=True), path)


def _names_line_of(path: str, text: str) -> bool:
    """Whether a text names lines of the file, as tracebacks, tests and compilers do."""
    name = re.escape(name_of_path(path))
    return bool(re.search(rf"(?<![\w.-]){name}(?::\d+|\", line \d)", text))
