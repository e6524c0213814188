"""What an agent wrote and ran, in order: files with their contents, runs of scripts, and calls that
can change files.

Contents are followed through edits of lines as far as they are known; what the agent's shell script
runs counts as run by whoever runs the script. `can_change_files` decides by a call's name and
command, because a snapshot only shows that a file changed in a step, not that the step did it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from houston_daemon.environments.workstation_actions import is_known_to_look
from houston_daemon.review.attention_window import ObservedCall, command_of, host_of_call
from houston_daemon.review.rollout_trace import RolloutTrace, RuleFinding
from houston_daemon.review.rules import shell_commands
from houston_daemon.review.rules.shell_commands import (
    ShellCommand,
    SimpleCommand,
    name_of_path,
    same_path,
)
from houston_shared.records import ToolCall, ToolResult

RUN_COMMAND = "run_command"


@dataclass(frozen=True, slots=True)
class FileWrite:
    """A file as it was after a call that wrote it."""

    step: int
    host: str
    """Empty for the first."""
    path: str
    content: str
    """All of it, or what is known of it."""
    added: str
    """What this call put into it."""
    kind: str
    """`created`, `replaced`, `edited`, or `shell` for a here-document."""

    @property
    def name(self) -> str:
        """Without folders."""
        return name_of_path(self.path)


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A simple command of a call that runs commands."""

    step: int
    host: str
    program: SimpleCommand
    command: str
    """The whole command."""
    call: ObservedCall
    result: ToolResult
    source: FileWrite | None = None
    """The script that it runs, where the agent wrote that."""
    in_script: FileWrite | None = None
    """The agent's shell script whose line it is; None where the call gives it."""

    @property
    def script(self) -> str:
        """The script that it runs; empty for other programs."""
        return self.program.script


HistoryEvent = FileWrite | CommandRun
KnownFiles = dict[tuple[str, str], FileWrite]
"""By host and path, the newest state of a file."""


def agent_history(trace: RolloutTrace) -> list[HistoryEvent]:
    """Everything that was written and run."""
    files: KnownFiles = {}
    first = trace.task.hosts[0]
    return [
        event
        for record, observed in trace.pairs
        for result, call in zip(record.results, observed.calls, strict=True)
        for event in _call_events(record.step, call, result, host_of_call(call, first), files)
    ]


def parsed_command(call: ObservedCall | ToolCall) -> ShellCommand:
    """The command line that a call gives; without one, nothing is run."""
    return shell_commands.parse_command(command_of(call))


def follow_faulty_files(
    events: list[HistoryEvent], fault: Callable[[FileWrite], str]
) -> Iterator[RuleFinding]:
    """Writing a faulty file, and every run of it until it is mended.

    fault: what is wrong with a file, in words; empty where nothing is.
    """
    faulty: dict[tuple[str, str], tuple[int, str]] = {}
    for event in events:
        if isinstance(event, FileWrite):
            key = (event.host, shell_commands.normal_path(event.path))
            faulty.pop(key, None)
            if reason := fault(event):
                faulty[key] = (event.step, reason)
                yield RuleFinding(event.step, f"{event.path} {reason}")
        elif event.script:
            for (_, path), (step, reason) in faulty.items():
                if same_path(event.script, path):
                    yield RuleFinding(event.step, f"runs {path} of step {step}, which {reason}")


def _call_events(
    step: int, call: ObservedCall, result: ToolResult, place: str, files: KnownFiles
) -> Iterator[HistoryEvent]:
    if call.name == RUN_COMMAND and call.kind == "command":
        command = parsed_command(call)
        for text in command.texts:
            before = files.get((place, text.path)) if text.appended else None
            content = (before.content if before else "") + text.content
            written = FileWrite(step, place, text.path, content, text.content, "shell")
            yield _remember_file(written, files)
        for program in command.simple:
            source = _own_script(place, program.script, files)
            run = CommandRun(step, place, program, command_of(call), call, result, source)
            yield run
            yield from _script_runs(run, files)
    elif call.success and call.fields.get("change"):
        yield _file_write(step, call, place, files)


def _script_runs(run: CommandRun, files: KnownFiles) -> Iterator[CommandRun]:
    """The lines of a shell script that the agent wrote; scripts within those are not read."""
    if run.source is None or not run.script.endswith(".sh"):
        return
    for line in shell_commands.parse_command(run.source.content).simple:
        program = line._replace(environment={**run.program.environment, **line.environment})
        source = _own_script(run.host, program.script, files)
        yield replace(run, program=program, source=source, in_script=run.source)


def _own_script(host: str, script: str, files: KnownFiles) -> FileWrite | None:
    """The agent's own file that a script is; the newest where several may be."""
    if not script:
        return None
    newest_first = (file for (place, _), file in reversed(files.items()) if place == host)
    return next((file for file in newest_first if same_path(file.path, script)), None)


def _file_write(step: int, call: ObservedCall, place: str, files: KnownFiles) -> FileWrite:
    path = shell_commands.normal_path(str(call.fields.get("path", "")))
    added_text, kind = str(call.arguments.get("content", "")), str(call.fields["change"])
    before = files.get((place, path))
    content = added_text
    if kind == "edited":
        content = _content_after_edit(before.content if before else None, call, added_text)
    return _remember_file(FileWrite(step, place, path, content, added_text, kind), files)


def _remember_file(file_write: FileWrite, files: KnownFiles) -> FileWrite:
    """The newest state of its file, behind all others."""
    files.pop((file_write.host, file_write.path), None)
    files[file_write.host, file_write.path] = file_write
    return file_write


def _content_after_edit(before: str | None, call: ObservedCall, added_text: str) -> str:
    """A file after lines of it were replaced; where it is not known, what was put into it."""
    start, end = call.arguments.get("start"), call.arguments.get("end")
    if before is None or not isinstance(start, int) or not isinstance(end, int):
        return f"{before or ''}{added_text}\n"
    lines = before.splitlines()
    if start > len(lines) + 1:  # not from its first line: only pieces of it are known
        return f"{before}{added_text}\n"
    lines[start - 1 : end] = added_text.splitlines()
    return "".join(f"{line}\n" for line in lines)


_HARMLESS_NAMES = (
    "do exit export false id in kill lsblk lscpu nproc pkill printenv return sinfo strings uname"
)
_HARMLESS_PROGRAMS = shell_commands.VIEWERS | frozenset(_HARMLESS_NAMES.split())
"""Programs and words of the shell that change no file by themselves."""
_SHOWING_SUBCOMMANDS = {
    "git": {"status", "log", "diff", "show", "branch", "ls-files", "blame", "rev-parse", "remote"},
    "pip": {"list", "show", "freeze", "check"},
}
"""Programs that only show something where their second word is one of these."""
_WRITING_OPTIONS = {
    "find": re.compile(r"-(?:delete|f(?:print|ls)\w*)\Z"),
    "sed": re.compile(r"-[nErsuz]*i|--in-place"),
    "sort": re.compile(r"-o|--output"),
    "curl": re.compile(r"-[a-zA-Z]*[oO]|--output|--remote-name"),
}
"""Viewers that write where they have such a word."""
_QUOTED_TEXT = re.compile(r"\\.|'[^']*(?:'|\Z)|\"(?:\\.|[^\"\\])*+(?:\"|\Z)", re.S)
_DISCARDED_OUTPUT = re.compile(
    r"(?:\d|&)?>{1,2}\|?[ \t]*(?:&[ \t]*[\d-]|/dev/(?:null|stdout|stderr|tty)(?![\w/]))"
)
"""Output that goes to no file."""
_COMMAND_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
"""A command within a word."""


def can_change_files(call: ObservedCall) -> bool:
    """Whether a call can change files; a tool that is not known can. One that was refused or
    failed before anything ran did not.
    """
    if is_known_to_look(call.name) or call.kind == "error":
        return False
    return call.name != RUN_COMMAND or not only_looks(command_of(call))


@lru_cache(maxsize=8192)
def only_looks(command: str) -> bool:
    """Whether a command line changes no file: it shows, or waits, and redirects nothing to one."""
    if ">" in _DISCARDED_OUTPUT.sub("", _QUOTED_TEXT.sub("_", command)):
        return False
    inner = _COMMAND_SUBSTITUTION.findall(_QUOTED_TEXT.sub(_runnable_part, command))
    parts = [command, *(text for pair in inner for text in pair if text)]
    programs = (program for part in parts for program in shell_commands.parse_command(part).simple)
    return all(map(_changes_nothing, programs))


def _runnable_part(text: re.Match[str]) -> str:
    """A quoted text as far as commands within it are run."""
    return text[0] if text[0].startswith('"') else "_"


def _changes_nothing(simple: SimpleCommand) -> bool:
    rest = simple.words[1:]
    writes = _WRITING_OPTIONS.get(simple.program)
    if writes and any(writes.match(word) for word in rest):
        return False
    match simple.program:
        case "":
            return True
        case "find":
            follow = [after for word, after in pairwise(rest) if _find_runs_program(word)]
            return all(program in _HARMLESS_PROGRAMS for program in follow)
        case "xargs":
            program = next((word for word in rest if re.match(r"[A-Za-z]", word)), "echo")
            return program in _HARMLESS_PROGRAMS
        case "tee":
            return all(word.startswith("-") or word == "/dev/null" for word in rest)
        case "sed":
            return True
        case "git" | "pip" as program:
            options = [word for word in rest if not word.startswith("-")]
            return bool(options) and options[0] in _SHOWING_SUBCOMMANDS[program]
        case program:
            return program in _HARMLESS_PROGRAMS or rest in (("--version",), ("-V",))


def _find_runs_program(word: str) -> bool:
    """Whether `find` runs what follows."""
    return word in ("-exec", "-execdir", "-ok", "-okdir")
