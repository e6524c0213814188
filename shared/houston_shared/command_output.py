"""What commands write: safe lines and JSON Lines on stdout, sentences on stderr.

It also repairs the standard streams: a closed stream must not leave its number to the next file
that is opened, and characters that the terminal's encoding lacks are written as escapes. It does
not know what is written.
"""

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import Any
from unicodedata import combining

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.safe_text import safe


def prepare_streams() -> None:
    """Fill the places of closed streams, and let no character fail."""
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest number: this one
    # What is opened to be read cannot be written: that nobody can see the output is said.
    sys.stdin = sys.stdin or os.fdopen(0, "r", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def stdout_takes_unicode() -> bool:
    """Whether standard output takes every character."""
    encoding: str | None = getattr(sys.stdout, "encoding", None)
    return (encoding or "utf-8").lower().startswith("utf")


def finish_streams() -> None:
    """Write what waits, if it can be written; an error has been said already."""
    try:
        sys.stdout.flush()
    except OSError:
        abandon_stdout()


def abandon_stdout() -> None:
    """Discard standard output, pending and future, because nobody reads it any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def print_line(text: str = "") -> None:
    """One safe line of text on stdout."""
    with guard_stdout():
        sys.stdout.write(safe(text) + "\n")


def flush_stdout() -> None:
    """Let a reader at the pipe's end see now what was written."""
    with guard_stdout():
        sys.stdout.flush()


def require_reader() -> None:
    """Raise BrokenPipeError where standard output is a pipe that nobody reads any more, as a write
    would: who waits for something to write asks now and then."""
    watched = select.poll()
    watched.register(1, 0)  # nothing but what is always told: error and hang-up
    if watched.poll(0):
        raise BrokenPipeError


@contextlib.contextmanager
def guard_stdout() -> Iterator[None]:
    """Around what writes to stdout; raises HoustonError where that is not possible.

    A reader that has gone (head, less) is no such problem: BrokenPipeError is left as it is.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        abandon_stdout()
        raise HoustonError(
            f"Standard output cannot be written: {problem.strerror}.", "Not everything was shown."
        ) from None


def print_json_line(value: Any) -> None:
    """One JSON object on stdout; flushed, so that a reader at the pipe's end sees it now."""
    # JSON escapes C0 itself; C1 and bidi controls are escaped here, for terminals.
    text = msgspec.json.encode(value).decode()
    if not stdout_takes_unicode() or safe(text) != text:
        text = "".join(map(_escape_non_ascii, text))
    with guard_stdout():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _escape_non_ascii(character: str) -> str:
    # Marks one by one are harmless, a flood of them is not: that this text is not safe is known.
    hostile = character != "\n" and (safe(character) != character or combining(character) > 0)
    if not hostile and (character.isascii() or stdout_takes_unicode()):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def print_note(text: str) -> None:
    """One safe line on stderr: progress, never data."""
    with contextlib.suppress(OSError):  # nobody can be told that nobody can be told
        sys.stderr.write(safe(text) + "\n")
        sys.stderr.flush()


def print_question(text: str) -> None:
    """A question to stderr, whose answer is typed behind it."""
    sys.stderr.write(safe(text))
    sys.stderr.flush()


_ERROR_PREFIX = "houston: "


def print_error(problem: HoustonError) -> None:
    """An error as cause, effect and next command on stderr."""
    print_note(_ERROR_PREFIX + error_text(problem))


def error_text(problem: HoustonError) -> str:
    """Cause and effect on one line, the next command on a second."""
    text = " ".join(filter(None, (problem.cause, problem.effect)))
    return text + (f"\n  next: {problem.next}" if problem.next else "")


def read_error(stderr: str) -> str:
    """Cause and effect that a command printed as its error, before which notes may stand; empty
    where it printed none."""
    errors = [line for line in stderr.splitlines() if line.startswith(_ERROR_PREFIX)]
    return errors[-1].removeprefix(_ERROR_PREFIX) if errors else ""
