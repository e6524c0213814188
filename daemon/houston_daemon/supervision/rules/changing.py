"""Which calls can change files, as their names and commands say it: snapshots show that a file
changed in a step, not that this step did it, for a job in the background may write at any time.
"""

import re
from functools import lru_cache
from itertools import pairwise

from houston_daemon.supervision.attention.window import HARMLESS, CallSeen
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.history import COMMAND
from houston_daemon.supervision.rules.shell import Simple

_LOOKS = frozenset(
    {
        "open_file", "file_goto_line", "file_scroll_down", "file_scroll_up", "search_dir",
        "search_file", "find_file", "list_files", "get_file_info", "create_session",
        "list_sessions", "get_session_output", "get_session_recent_output",
        "get_session_status", "check_session_idle", "clear_session_buffer", "close_session",
        "close_all_sessions", "kill_session_processes", "web_search", "web_browse",
        "web_page_goto_line", "web_page_scroll_down", "web_page_scroll_up", "web_page_search",
        "web_page_search_next", "web_page_get_links",
    }
)  # fmt: skip
"""Actions that look, or that concern sessions and no file."""
_STILL = shell.VIEWERS | frozenset(
    {
        ":", "[[", "break", "case", "continue", "do", "done", "esac", "exit", "export", "false",
        "fi", "for", "hostname", "id", "in", "jobs", "kill", "lsblk", "lscpu", "lsof", "md5sum",
        "nproc", "pgrep", "pkill", "printenv", "return", "seq", "set", "sinfo", "sleep",
        "squeue", "strings", "tac", "uname", "unset", "uptime", "wait", "whoami", "zcat",
    }
)  # fmt: skip
"""Programs and words of the shell that change no file by themselves."""
_SHOWING = {
    "git": {"status", "log", "diff", "show", "branch", "ls-files", "blame", "rev-parse", "remote"},
    "pip": {"list", "show", "freeze", "check"},
}
"""Programs that only show something where their second word is one of these."""
_WRITING = {
    "find": re.compile(r"-(?:delete|f(?:print|ls)\w*)\Z"),
    "sed": re.compile(r"-[nErsuz]*i|--in-place"),
    "sort": re.compile(r"-o|--output"),
    "curl": re.compile(r"-[a-zA-Z]*[oO]|--output|--remote-name"),
}
"""Viewers that write where they have such a word."""
_TEXT = re.compile(r"\\.|'[^']*(?:'|\Z)|\"(?:\\.|[^\"\\])*+(?:\"|\Z)", re.S)
_NOWHERE = re.compile(
    r"(?:\d|&)?>{1,2}\|?[ \t]*(?:&[ \t]*[\d-]|/dev/(?:null|stdout|stderr|tty)(?![\w/]))"
)
"""Output that goes to no file."""
_INNER = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
"""A command within a word."""


def can_change(call: CallSeen) -> bool:
    """Whether a call can change files; a tool that is not known can. One that was refused or
    failed before anything ran did not.
    """
    if call.name in HARMLESS or call.name in _LOOKS or call.kind == "error":
        return False
    return call.name != COMMAND or not only_looks(str(call.arguments.get("command", "")))


@lru_cache(maxsize=8192)
def only_looks(command: str) -> bool:
    """Whether a command line changes no file: it shows, or waits, and redirects nothing to one."""
    if ">" in _NOWHERE.sub("", _TEXT.sub("_", command)):
        return False
    inner = _INNER.findall(_TEXT.sub(_shown, command))
    parts = [command, *(one for pair in inner for one in pair if one)]
    return all(_still(one) for part in parts for one in shell.read(part).simple)


def _shown(text: re.Match[str]) -> str:
    """A quoted text as far as commands within it are run."""
    return text[0] if text[0].startswith('"') else "_"


def _still(one: Simple) -> bool:
    rest = one.words[1:]
    writes = _WRITING.get(one.program)
    if writes and any(writes.match(word) for word in rest):
        return False
    match one.program:
        case "":
            return True
        case "find":
            follow = [after for word, after in pairwise(rest) if _runs(word)]
            return all(program in _STILL for program in follow)
        case "xargs":
            program = next((word for word in rest if re.match(r"[A-Za-z]", word)), "echo")
            return program in _STILL
        case "tee":
            return all(word.startswith("-") or word == "/dev/null" for word in rest)
        case "sed":
            return True
        case "git" | "pip" as program:
            options = [word for word in rest if not word.startswith("-")]
            return bool(options) and options[0] in _SHOWING[program]
        case program:
            return program in _STILL or rest in (("--version",), ("-V",))


def _runs(word: str) -> bool:
    """Whether `find` runs what follows."""
    return word in ("-exec", "-execdir", "-ok", "-okdir")
