"""The standard streams of a command, whatever its caller made of them.

A stream that is closed must not leave its number to the next file that is opened: bytes for people
would go into it. Text that the terminal's encoding lacks is written as escapes.
"""

import io
import os
import sys


def prepare() -> None:
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


def unicode() -> bool:
    """Whether standard output takes every character."""
    encoding: str | None = getattr(sys.stdout, "encoding", None)
    return (encoding or "utf-8").lower().startswith("utf")


def finish() -> None:
    """Write what waits, if it can be written; an error has been said already."""
    try:
        sys.stdout.flush()
    except OSError:
        abandon()


def abandon() -> None:
    """Nobody reads standard output any more: what waits, and what comes, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
