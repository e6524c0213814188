"""Whether a command failed: what its exit code means, and what its output says about a failed
program.

Exit code 1 of `test` or `grep` is an answer; a program that the agent ended (`timeout`, `kill`, ^C)
is no error. In output only messages of well-known programs, tracebacks and the shell's own messages
count: what an agent's program prints is its output. Detached programs (`&`, `nohup`) are followed
through the files that their output goes to.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from houston_daemon.review.attention_signals import shows_path, starts_detached
from houston_daemon.review.attention_window import (
    ObservedCall,
    command_of,
    excerpt,
    host_of_call,
)
from houston_daemon.review.rollout_trace import RolloutTrace
from houston_daemon.review.rules import shell_commands
from houston_daemon.review.rules.shell_commands import SimpleCommand, name_of_path
from houston_daemon.review.rules.written_files import RUN_COMMAND, parsed_command
from houston_shared.records import ToolResult

_ANSWERING_NAMES = "grep egrep fgrep rg test [ [[ pgrep pkill killall command hash lsof"
_QUIET_ANSWERS = frozenset(_ANSWERING_NAMES.split())
"""Programs whose exit code 1 is an answer and no error (POSIX)."""
_PRINTED_ANSWERS = frozenset({"diff", "cmp", "which", "type"})
"""The same of programs that also print their answer."""
_GIT_ANSWERS = frozenset({"diff", "grep", "merge-base"})
_NEVER_FAILING = frozenset({"", "cd", "echo", "printf", "true", "sleep", "set", "export", ":"})
"""Programs that a list of commands goes through: they are not what has failed."""
_BLOCK_ENDS = frozenset({"done", "fi", "esac"})
_EXIT_WORDS = frozenset({"exit", "return", "false"})
_CHECKER_NAMES = (
    "pytest py.test tox nox nosetests ctest jest vitest mocha rspec phpunit ruff flake8 pylint mypy"
    " pyright pyflakes bandit eslint tsc shellcheck black isort clang-tidy hadolint yamllint"
)
_CHECKERS = frozenset(_CHECKER_NAMES.split())
"""Programs that say what is wrong with others: tests, linters, type checkers."""
_FORMATTERS = frozenset({"black", "isort"})
_CHECKING_MODULES = frozenset({"unittest", "py_compile", "compileall", "json.tool", "doctest"})
_CHECK_GOALS = frozenset(
    {"test", "tests", "check", "lint", "typecheck", "clippy", "vet", "nextest"}
)
_BUILDERS = frozenset({"make", "npm", "yarn", "pnpm", "mvn", "gradle", "cargo", "go"})
"""Programs that check where one of the words is a goal."""
_TRIAL_SCRIPT = re.compile(r"\b(?:test_\w*|\w+_test|repro\w*)\.(?:py|sh)\Z")
"""Scripts that show whether something works."""
_PYTEST = frozenset({"pytest", "py.test"})
_CHECK_FINDINGS = re.compile(r"\b(?:fail(?:ed|ures?|ing)?|errors?|warnings?|problems?)\b", re.I)
_NOT_RUN_CODE = 126
"""The first of the exit codes with which a shell says that a program was not run, or was ended."""
_ASKS_IMPORT = re.compile(r"(?>(?:import|from)\s[^;\n]+|print\([^;\n]*\)|[;\s])++")
"""Possessive: each statement can be read in one way, and is not tried in others."""
_MAX_PROBE_CHARACTERS = 300
"""Characters of a program that only imports."""
_IMPORT_FAILED = re.compile(r"^(?:ModuleNotFoundError|ImportError): ", re.M)
_CONNECTING_PROGRAMS = frozenset({"curl", "wget", "nc", "ncat", "pg_isready", "redis-cli", "ping"})
_LOCAL_ADDRESS = re.compile(r"(?:\A|[/@])(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?:[:/]|\Z)")
_DISCARDED_STDERR = re.compile(r"(?:2|&)>{1,2}\s*/dev/null")
_TIMEOUT = re.compile(r"(?<![\w./-])timeout\s+(?:-\S+\s+)*[\w.$-]")
_TIMEOUT_KILLS = re.compile(
    r"(?<![\w./-])timeout\s[^;|\n]{0,80}-(?:k|-kill-after|s\s*(?:9|(?:SIG)?KILL))\b"
)
_STOPPING_COMMAND = re.compile(
    r"(?<![\w-])(?:p?kill|killall|fuser\s+-\w{0,5}k|scancel|kill-(?:session|server|window|pane))\b"
    r"|\x03|\^C|\bC-c\b|\bctrl[-+ ]c\b",
    re.I,
)
_KILL_9 = re.compile(
    r"(?<![\w-])(?:p?kill|killall)\b[^;&|\n]{0,200}?\s--?(?:s\s*|signal[= ])?(?:9|(?:SIG)?KILL)\b"
    r"|\bfuser\s+-\w{0,5}k"
)
_KILL_BY_NAME = frozenset({"pkill", "killall"})


def is_answer(command: str, printed: str) -> bool:
    """Whether exit code 1 of a command is an answer.

    printed: what the command printed. If another program of the same list could also have ended
    with 1, text that `test` and `grep` do not print comes from that program, and is no answer.
    """
    last = _deciding_programs(shell_commands.parse_command(command).simple)
    saying = [program for program in last if _answers_by_exit_code(program)]
    if not saying:
        return False
    other_programs = [program for program in _fallible(last) if program not in saying]
    prints_answer = any(program.program not in _QUIET_ANSWERS for program in saying)
    return not other_programs or not printed.strip() or prints_answer


def is_checker(simple: SimpleCommand) -> bool:
    """Whether a program says what is wrong with something: that is its answer, and no error."""
    words = simple.words[1:]
    if simple.program in _CHECKERS:
        return simple.program not in _FORMATTERS or "--check" in words or "-c" in words
    if simple.program in _BUILDERS:
        return bool(_CHECK_GOALS & set(words))
    if simple.program.startswith("python") and "-m" in words[:-1]:
        return words[words.index("-m") + 1] in _CHECKERS | _CHECKING_MODULES
    return bool(_TRIAL_SCRIPT.match(name_of_path(simple.script)))


def is_check_report(code: int | None, command: str, printed: str) -> bool:
    """Whether an exit code reports what a check found, not that the check itself failed.

    printed: what the command printed; needed if another program could have failed, too.
    """
    # An environment may give something else than a number.
    if not isinstance(code, int) or not 0 < code < _NOT_RUN_CODE:
        return False
    last = _deciding_programs(shell_commands.parse_command(command).simple)
    if not last or not is_checker(last[0]):
        return False
    name = last[0].program if last[0].program in _PYTEST else "".join(_PYTEST & {*last[0].words})
    if name and code != 1:  # pytest's own: it was cut, its arguments or a module are wrong
        return False
    other_programs = [program for program in _fallible(last[1:]) if not program.views]
    return not other_programs or bool(_CHECK_FINDINGS.search(printed))


def is_probe(command: str, printed: str, code: int | None = 0) -> bool:
    """Whether a command only asks if something is there: a package, a server, a file."""
    last = _deciding_programs(shell_commands.parse_command(command).simple)
    if not last:
        return False
    simple, words = last[0], set(last[0].words[1:])
    inline = simple.inline if simple.program.startswith("python") else ""
    if inline and len(inline) < _MAX_PROBE_CHARACTERS and _ASKS_IMPORT.fullmatch(inline):
        return bool(_IMPORT_FAILED.search(printed))
    if code == 1 and ("pip" in simple.program or "pip" in words) and "show" in words:
        return True
    if simple.program in _CONNECTING_PROGRAMS:
        return code != _NOT_RUN_CODE and any(_LOCAL_ADDRESS.search(word) for word in simple.words)
    if simple.program == "systemctl":
        return bool(words & {"is-active", "status", "is-enabled"})
    shows = code in (1, 2) and simple.views and simple.program
    return bool(shows and _DISCARDED_STDERR.search(command))


def exit_was_requested(code: int | None, command: str, later: str = "") -> bool:
    """Whether the agent had a command ended with this exit code.

    command: with the texts of the agent's scripts that it runs. later: what the agent did until the
    command was seen to have ended. 137 may also mean out of memory, so it counts only if a signal 9
    was sent to the program.
    """
    both_commands = f"{command}\n{later}"
    match code:
        case 124:
            return bool(_TIMEOUT.search(command))
        case 137:
            killing = filter(_KILL_9.search, both_commands.split("\n"))
            sent = any(_signal_may_concern(line, command) for line in killing)
            return sent or bool(_TIMEOUT_KILLS.search(command))
        case 130 | 143:
            return bool(_STOPPING_COMMAND.search(both_commands) or _TIMEOUT.search(command))
    return False


def is_job_failure(command: str, code: int, later: str = "", scripts: str = "") -> bool:
    """Whether a job that ended with this exit code failed: not where that is an answer, such as of
    a test runner, nor where the agent had it ended.

    later: as for `exit_was_requested`. scripts: texts of the agent's scripts that it runs.
    """
    answer = code == 1 and is_answer(command, "it may have printed")
    answer = answer or is_check_report(code, command, "")
    ran = f"{command}\n{scripts}" if scripts else command
    return bool(code) and not answer and not exit_was_requested(code, ran, later)


def may_stop(command: str, other_command: str) -> bool:
    """Whether a command may end another one, so that how that ends was asked for."""
    lines = filter(_STOPPING_COMMAND.search, command.split("\n"))
    return any(_signal_may_concern(line, other_command) for line in lines)


def _deciding_programs(simple: tuple[SimpleCommand, ...]) -> list[SimpleCommand]:
    """Programs of the last list of `&&` and `||` whose failure can be that of all of it."""
    end = len(simple)
    while end and (simple[end - 1].program in _BLOCK_ENDS or not simple[end - 1].words):
        end -= 1
    deciding: list[SimpleCommand] = []
    for at in range(end - 1, -1, -1):
        after = simple[at].after if at < end - 1 else ""
        if after == "|":  # the last of a pipeline speaks for it
            continue
        gave_up = bool(deciding) and deciding[-1].program in _EXIT_WORDS
        if after and after != "&&" and not (after == "||" and gave_up):
            break
        if gave_up:
            deciding.pop()
        deciding.append(simple[at])
    return deciding


def _fallible(programs: list[SimpleCommand]) -> list[SimpleCommand]:
    return [program for program in programs if program.program not in _NEVER_FAILING]


def _answers_by_exit_code(simple: SimpleCommand) -> bool:
    return simple.program in _QUIET_ANSWERS | _PRINTED_ANSWERS or simple.git in _GIT_ANSWERS


def _signal_may_concern(line: str, command: str) -> bool:
    """Whether signals may be for a command: those that go by name must name it."""
    named = [
        program.words[-1]
        for program in shell_commands.parse_command(line).simple
        if program.program in _KILL_BY_NAME
    ]
    return not named or any(name in command for name in named)


KEYBOARD_INTERRUPT = "KeyboardInterrupt"
_TRACEBACK_TEXT = "Traceback (most recent call last):"
_TRACEBACK_LINE = re.compile(r"^(?:\d+[\t:-])?Traceback \(most recent call last\):$", re.M)
"""Also with the number of a line, as `open_file` and `grep -n` show it."""
_EXCEPTION_LINE = re.compile(
    r"^(?:\d+[\t:-])?(\w[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.M
)
_SHELL_ERROR = re.compile(
    r"^(?:/\S+/)?(?:ba|z|da)?sh: .*(?:command not found|No such file or directory|"
    r"Permission denied|syntax error).*$",
    re.M,
)
_EXCEPTION_WORDS = re.compile(
    r"(?<![\w.])(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: .*|:)?"
)
_SLURM_JOB = re.compile(r"^Submitted batch job (\d+)", re.M)
_SIGNAL_WORDS = r"Segmentation fault|Killed|Aborted|Bus error|Illegal instruction"
_PROGRAM_ERROR = re.compile(
    r"^(?:\S+: error: (?:unrecognized arguments|the following arguments|argument |invalid choice)"
    r"|make(?:\[\d+\])?: \*\*\* |fatal: |npm ERR! |npm error |E: |error: subprocess-exited-with"
    r"|ERROR: (?:Could not|No matching|Failed building|Cannot install|Invalid requirement)"
    rf"|(?:\S+: line \d+: +)?(?:\d+ )?(?:{_SIGNAL_WORDS})(?: |$)).*$",
    re.M,
)
"""make, git, npm, apt, pip, argparse, and the shell of a program that a signal ended."""
_PROGRAM_ERROR_MARKS = (
    ": error: ",
    "error: sub",
    "***",
    "fatal: ",
    "npm ",
    "E: ",
    "ERROR: ",
    *_SIGNAL_WORDS.split("|"),
)
"""What such a line has in it: most texts have none of them."""
_SHELL_JOB_ENDED = re.compile(
    rf"^\[\d+\][-+]? +(?:Exit (?P<code>\d+)|{_SIGNAL_WORDS}).*?(?<! ) {{2,}}+(?P<command>\S.*)$",
    re.M,
)
"""How a shell tells that a job of the background ended."""
_DEVICE_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


def last_traceback_line(text: str) -> str:
    """The last line of the last traceback; empty where there is none."""
    if _TRACEBACK_TEXT not in text:
        return ""
    begin = next((match.end() for match in _TRACEBACK_LINE.finditer(text)), None)
    if begin is None:
        return ""
    exceptions = _EXCEPTION_LINE.findall(text, begin)
    return excerpt(exceptions[-1]) if exceptions else "a traceback"


def trailing_exception(text: str) -> str:
    """The exception that a text ends with, where a pipe has cut its traceback off; else empty."""
    last = text.rstrip().rpartition("\n")[2]
    return excerpt(last) if _EXCEPTION_WORDS.fullmatch(last) else ""


def printed_failure(text: str) -> str:
    """What a text says of a program that failed; empty where it says nothing of the kind."""
    if reason := last_traceback_line(text):
        return "" if reason == KEYBOARD_INTERRUPT else reason
    match = _SHELL_ERROR.search(text) if "sh: " in text else None
    if match is None and any(mark in text for mark in _PROGRAM_ERROR_MARKS):
        match = _PROGRAM_ERROR.search(text)
    return excerpt(match[0].strip()) if match else ""


MAX_DETACHED_PROGRAMS = 20
"""Programs in the background that are followed at once, the newest."""


class DetachedProgram(NamedTuple):
    """A command that left a program running apart from the sessions."""

    step: int
    host: str
    command: str
    logs: tuple[str, ...]
    """Files that its output goes to."""


def failed_detached_programs(trace: RolloutTrace) -> Iterator[tuple[int, str]]:
    """Steps that started a program in the background which failed, as its log or the shell showed
    later; with what was shown."""
    first = trace.task.hosts[0]
    running: list[DetachedProgram] = []
    for record, observed in trace.pairs:
        for result, call in zip(record.results, observed.calls, strict=True):
            for program, reason in follow_detached_programs(
                call, result, record.step, running, first
            ):
                failure = f"it failed (step {record.step}): {reason}"
                yield program.step, f"{excerpt(program.command)}: {failure}"


def follow_detached_programs(
    call: ObservedCall, result: ToolResult, step: int, running: list[DetachedProgram], first: str
) -> Iterator[tuple[DetachedProgram, str]]:
    """Programs in the background that a call shows to have failed, with what it shows.

    running: those that were started before, which is kept. first: name of the first host.
    """
    place = host_of_call(call, first)
    command = command_of(call)
    running[:] = [program for program in running if not may_stop(command, program.command)]
    if running and (failure_of := _failure_teller(call, result)):
        for program in [program for program in reversed(running) if program.host == place]:
            if reason := failure_of(program):
                running.remove(program)
                yield program, reason
    if started := _started_program(step, place, call, result.text):
        other_programs = [
            program for program in running if not set(program.logs) & set(started.logs)
        ]
        running[:] = [*other_programs[-MAX_DETACHED_PROGRAMS:], started]


def _failure_teller(
    call: ObservedCall, result: ToolResult
) -> Callable[[DetachedProgram], str] | None:
    """What a call tells of programs in the background, as a function of one; None for nothing."""
    ended = list(_SHELL_JOB_ENDED.finditer(result.text)) if "]" in result.text else []
    is_shown = call.kind == "file" or (call.kind == "command" and parsed_command(call).views)
    reason = printed_failure(result.text) if is_shown else ""
    if not ended and not reason:
        return None

    def failure_of(program: DetachedProgram) -> str:
        for line in ended:
            if line["command"].strip() in program.command:
                return excerpt(line[0])
        shows_log = any(shows_path(call, path, shell_commands.same_path) for path in program.logs)
        return reason if shows_log else ""

    return failure_of


def _started_program(
    step: int, place: str, call: ObservedCall, text: str
) -> DetachedProgram | None:
    command = command_of(call)
    if call.name != RUN_COMMAND or not call.success or not starts_detached(command):
        return None
    logs: list[str] = []
    for program in shell_commands.parse_command(command).simple:
        if not program.views:
            logs += [*program.outputs, *program.writes]
        elif program.program == "tee":
            logs += program.writes
    logs += [f"slurm-{number}.out" for number in _SLURM_JOB.findall(text)]
    if not logs and "nohup" in command:
        logs = ["nohup.out"]
    return DetachedProgram(
        step, place, command, tuple(path for path in logs if path not in _DEVICE_FILES)
    )
