"""The marks that a terminal's shell writes into its output, and the lines that make it write them.

A mark is an operating system command (OSC) that terminals ignore: `ESC ] 7771 ; kind ; nonce BEL`.
Kinds: `r` the shell is ready, `p` a prompt begins on a fresh line (with the time, in place of a
nonce), `s` a command starts, `e` it has ended (with its exit code and the time). Every command has
nonces of its own, which reach the shell through a pipe that it alone reads, so that no variable,
file, trace or DEBUG trap of the command can show them.
"""

import re
import secrets
import shlex
from dataclasses import dataclass

_NUMBER = 7771
_LONGEST = 100
"""Bytes of the longest mark, with room."""
_END = re.compile(rb"\x1b\]7771;[rse];[^\x07\x1b]{0,80}\x07")
_PROMPT = re.compile(rb"\x1b\]7771;p;[^\x07\x1b]{0,80}\x07")
_HALF = re.compile(rb"\x1b(?:\](?:7(?:7(?:7(?:1[^\x07\x1b]{0,90})?)?)?)?)?\Z")
_SHOWN = 200
_TIME, _NOW = "%.17s", '"${EPOCHREALTIME-}"'
"""Seconds since 1970 with microseconds; empty before bash 5."""


@dataclass(frozen=True, slots=True)
class MarkNonces:
    """Secrets of one command."""

    start: str
    end: str

    @classmethod
    def fresh(cls) -> "MarkNonces":
        """Two new ones, 128 bits each."""
        return cls(secrets.token_hex(16), secrets.token_hex(16))


def ready_mark(nonce: str) -> bytes:
    """The first mark; the tty's path and the shell's pid follow, separated by spaces, up to BEL."""
    return f"\x1b]{_NUMBER};r;{nonce};".encode()


def start_mark(nonces: MarkNonces) -> bytes:
    """The complete mark of a start."""
    return f"\x1b]{_NUMBER};s;{nonces.start}\x07".encode()


def end_mark(nonces: MarkNonces) -> bytes:
    """The mark of an end up to its exit code; `;`, the time, which may be empty, and BEL follow."""
    return f"\x1b]{_NUMBER};e;{nonces.end};".encode()


def shell_greeting(nonce: str) -> bytes:
    """The first line for a new shell: say which tty and which pid; keep no history of our lines."""
    tell = f"builtin printf '\\033]{_NUMBER};r;{nonce};%s %s\\007' \"$(tty <&2)\" $$ >/dev/tty"
    quiet = "PROMPT_COMMAND='{ PS1= PS2=; } 2>/dev/null'"  # activating an environment sets PS1
    forget = "set +o history; history -c; unset HISTFILE MAILCHECK"
    return f"{quiet}; {forget}; export -n PS1; {tell}\n".encode()


def command_lines(nonces: MarkNonces, command: str, path: str, tty: str) -> bytes:
    """The lines that run the command file `path` with `tty` as its input, marked.

    Three lines, because an interrupt drops the rest of a line and no more. Shorter than PIPE_BUF,
    so that one write hands them over whole. Between commands trace flags, history and the DEBUG
    trap are put away; the flags come back before the next one.
    """
    shown_command = _printable_command(command)
    # `%.0s` takes an argument that prints nothing: the last one stays in the shell's `$_`.
    prompt = f"\\033]{_NUMBER};p;{_TIME}\\007%s $ %s\\n\\033]{_NUMBER};s;%s\\007%.0s"
    return (
        f"\\builtin printf '{prompt}' {_NOW} \"${{PWD-}}\" {shlex.quote(shown_command)}"
        f" {nonces.start} - >/dev/tty; "
        "[[ ${__houston_flags-} != *v* ]] || \\builtin set -v; "
        "[[ ${__houston_flags-} != *x* ]] || \\builtin set -x; "
        f"\\builtin . {shlex.quote(path)} <{shlex.quote(tty)}\n"
        "{ __houston_code=$? __houston_flags=$-; \\builtin trap - DEBUG; \\builtin set +xv;"
        " \\builtin set +o history; } 2>/dev/null\n"
    ).encode() + end_line(nonces)


def end_line(nonces: MarkNonces) -> bytes:
    """The line that writes the end mark (again, when the log may have missed it).

    A command may have made the variable read-only: only four characters of it are used, so the mark
    is short enough to be found in any two reads of the log.
    """
    mark = f"\\033]{_NUMBER};e;%s;%s;{_TIME}\\007"
    words = f'{nonces.end} "${{__houston_code:0:4}}" {_NOW}'
    return f"\\builtin printf '{mark}' {words} >/dev/tty\n".encode()


def _printable_command(command: str) -> str:
    first = command.strip().split("\n", 1)[0]
    cut = first != command.strip() or len(first) > _SHOWN
    safe = "".join(c if c.isprintable() else " " for c in first[:_SHOWN])
    return safe + " …" if cut else safe


def without_marks(data: bytes, before: bytes, secret: MarkNonces | None) -> bytes:
    """`data` with no trace of a mark; a prompt begins on a fresh line.

    before: up to 100 bytes that precede `data` in the log, to recognise a mark cut in two.
    secret: nonces that must not show even outside a mark.
    """
    cut = _HALF.search(before)
    if cut is not None:
        joined = cut.group() + data
        mark = _END.match(joined) or _PROMPT.match(joined)
        data = joined[mark.end() :] if mark is not None else data
    half = _HALF.search(data[-_LONGEST:])
    if half is not None:
        data = data[: len(data) - len(half.group())]
    data = _END.sub(b"", data)
    if secret is not None:
        data = data.replace(secret.start.encode(), b"").replace(secret.end.encode(), b"")
    return _PROMPT.sub(lambda mark: _with_fresh_line(mark, data), data)


def _with_fresh_line(mark: "re.Match[bytes]", data: bytes) -> bytes:
    at = mark.start()
    return b"" if at == 0 or data[at - 1] == 0x0A else b"\r\n"


MARK_LOOK_BEHIND = _LONGEST
"""How many bytes before a window `without_marks` wants to see."""
