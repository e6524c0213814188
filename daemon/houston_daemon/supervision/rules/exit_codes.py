"""What an exit code says of a command that did not succeed: an answer (`test`, `grep`), or that the
agent had it ended (`timeout`, `kill`, ^C). Everything else is an error.
"""

import re

from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.shell import Simple

_NO = "grep egrep fgrep rg test [ [[ pgrep pkill killall command hash lsof"
_QUIET = frozenset(_NO.split())
"""Programs whose exit code 1 is an answer and no error (POSIX)."""
_SHOWS = frozenset({"diff", "cmp", "which", "type"})
"""The same of programs that also print their answer."""
_GIT = frozenset({"diff", "grep", "merge-base"})
_SURE = frozenset({"", "cd", "echo", "printf", "true", "sleep", "set", "export", ":"})
"""Programs that a list of commands goes through: they are not what has failed."""
_ENDS = frozenset({"done", "fi", "esac"})
_GIVES_UP = frozenset({"exit", "return", "false"})
_CHECK = (
    "pytest py.test tox nox nosetests ctest jest vitest mocha rspec phpunit ruff flake8 pylint mypy"
    " pyright pyflakes bandit eslint tsc shellcheck black isort clang-tidy hadolint yamllint"
)
_CHECKERS = frozenset(_CHECK.split())
"""Programs that say what is wrong with others: tests, linters, type checkers."""
_FORMATTERS = frozenset({"black", "isort"})
_MODULES = frozenset({"unittest", "py_compile", "compileall", "json.tool", "doctest"})
_GOALS = frozenset({"test", "tests", "check", "lint", "typecheck", "clippy", "vet", "nextest"})
_BUILDERS = frozenset({"make", "npm", "yarn", "pnpm", "mvn", "gradle", "cargo", "go"})
"""Programs that check where one of the words is a goal."""
_TRIES = re.compile(r"(?:test_\w*|\w+_test|repro\w*)\.(?:py|sh)\Z")
"""Scripts that show whether something works."""
_PYTEST = frozenset({"pytest", "py.test"})
_FOUND = re.compile(r"\b(?:fail(?:ed|ures?|ing)?|errors?|warnings?|problems?)\b", re.I)
_NOT_RUN = 126
"""The first of the exit codes with which a shell says that a program was not run, or was ended."""
_ASKS_IMPORT = re.compile(r"(?:(?:import|from)\s[^;\n]+|print\([^;\n]*\)|[;\s])+")
_LONGEST_PROBE = 300
"""Characters of a program that only imports."""
_NO_IMPORT = re.compile(r"^(?:ModuleNotFoundError|ImportError): ", re.M)
_CONNECTS = frozenset({"curl", "wget", "nc", "ncat", "pg_isready", "redis-cli", "ping"})
_HERE = re.compile(r"(?:\A|[/@])(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?:[:/]|\Z)")
_SILENT = re.compile(r"(?:2|&)>{1,2}\s*/dev/null")
_TIMEOUT = re.compile(r"(?<![\w./-])timeout\s+(?:-\S+\s+)*[\w.$-]")
_TIMEOUT_KILLS = re.compile(
    r"(?<![\w./-])timeout\s[^;|\n]{0,80}-(?:k|-kill-after|s\s*(?:9|(?:SIG)?KILL))\b"
)
_STOPS = re.compile(
    r"(?<![\w-])(?:p?kill|killall|fuser\s+-\w{0,5}k|scancel|kill-(?:session|server|window|pane))\b"
    r"|\x03|\^C|\bC-c\b|\bctrl[-+ ]c\b",
    re.I,
)
_AT_ONCE = re.compile(
    r"(?<![\w-])(?:p?kill|killall)\b[^;&|\n]{0,200}?\s--?(?:s\s*|signal[= ])?(?:9|(?:SIG)?KILL)\b"
    r"|\bfuser\s+-\w{0,5}k"
)
_BY_NAME = frozenset({"pkill", "killall"})


def answers(command: str, printed: str) -> bool:
    """Whether exit code 1 of a command is an answer.

    printed: what the command printed. Where another program of the same list could have ended with
    1, too, words that `test` and `grep` do not print are its words, and no answer.
    """
    last = _could_decide(shell.read(command).simple)
    saying = [one for one in last if _says_no(one)]
    if not saying:
        return False
    others = [one for one in last if one not in saying and one.program not in _SURE]
    return not others or not printed.strip() or any(not _quiet(one) for one in saying)


def checks(one: Simple) -> bool:
    """Whether a program says what is wrong with something: that is its answer, and no error."""
    words = one.words[1:]
    if one.program in _CHECKERS:
        return one.program not in _FORMATTERS or "--check" in words or "-c" in words
    if one.program in _BUILDERS:
        return bool(_GOALS & set(words))
    if one.program.startswith("python") and "-m" in words[:-1]:
        return words[words.index("-m") + 1] in _CHECKERS | _MODULES
    return bool(_TRIES.match(one.script.rpartition("/")[2]))


def reports(code: int | None, command: str, printed: str) -> bool:
    """Whether an exit code is what a check found, and not that the check itself went wrong.

    printed: what the command printed, which tells where another program could have failed, too.
    """
    if not isinstance(code, int) or not 0 < code < _NOT_RUN:  # an environment may say otherwise
        return False
    last = _could_decide(shell.read(command).simple)
    if not last or not checks(last[0]):
        return False
    name = last[0].program if last[0].program in _PYTEST else "".join(_PYTEST & {*last[0].words})
    if name and code != 1:  # pytest's own: it was cut, its arguments or a module are wrong
        return False
    others = [one for one in last[1:] if one.program not in _SURE and not one.views]
    return not others or bool(_FOUND.search(printed))


def probes(command: str, printed: str, code: int | None = 0) -> bool:
    """Whether a command only asks if something is there: a package, a server, a file."""
    last = _could_decide(shell.read(command).simple)
    if not last:
        return False
    one, words = last[0], set(last[0].words[1:])
    inline = one.inline if one.program.startswith("python") else ""
    if inline and len(inline) < _LONGEST_PROBE and _ASKS_IMPORT.fullmatch(inline):
        return bool(_NO_IMPORT.search(printed))
    if code == 1 and ("pip" in one.program or "pip" in words) and "show" in words:
        return True
    if one.program in _CONNECTS:
        return code != _NOT_RUN and any(_HERE.search(word) for word in one.words)
    if one.program == "systemctl":
        return bool(words & {"is-active", "status", "is-enabled"})
    return bool(code in (1, 2) and one.views and one.program and _SILENT.search(command))


def asked_for(code: int | None, command: str, later: str = "") -> bool:
    """Whether the agent had a command ended with this exit code.

    command: with the texts of the agent's scripts that it runs. later: what the agent did until the
    command was seen to have ended; a program that went out of memory ends with 137, too, which only
    a signal 9 that was sent to it explains.
    """
    both = f"{command}\n{later}"
    match code:
        case 124:
            return bool(_TIMEOUT.search(command))
        case 137:
            sent = any(_concerns(one, command) for one in both.split("\n") if _AT_ONCE.search(one))
            return sent or bool(_TIMEOUT_KILLS.search(command))
        case 130 | 143:
            return bool(_STOPS.search(both) or _TIMEOUT.search(command))
    return False


def stops(command: str, other: str) -> bool:
    """Whether a command may end another one, so that how that ends was asked for."""
    lines = (line for line in command.split("\n") if _STOPS.search(line))
    return any(_concerns(line, other) for line in lines)


def _could_decide(simple: tuple[Simple, ...]) -> list[Simple]:
    """Programs of the last list of `&&` and `||` whose failure can be that of all of it."""
    end = len(simple)
    while end and (simple[end - 1].program in _ENDS or not simple[end - 1].words):
        end -= 1
    found: list[Simple] = []
    for at in range(end - 1, -1, -1):
        after = simple[at].after if at < end - 1 else ""
        if after == "|":  # the last of a pipeline speaks for it
            continue
        gave_up = bool(found) and found[-1].program in _GIVES_UP
        if after and after != "&&" and not (after == "||" and gave_up):
            break
        if gave_up:
            found.pop()
        found.append(simple[at])
    return found


def _says_no(one: Simple) -> bool:
    return one.program in _QUIET | _SHOWS or one.git in _GIT


def _quiet(one: Simple) -> bool:
    return one.program in _QUIET


def _concerns(line: str, command: str) -> bool:
    """Whether signals may be for a command: those that go by name must name it."""
    named = [one.words[-1] for one in shell.read(line).simple if one.program in _BY_NAME]
    return not named or any(one in command for one in named)
