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
