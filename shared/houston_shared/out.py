"""What commands write: safe lines and JSON Lines on stdout, sentences on stderr."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unicodedata import combining

import msgspec

from houston_shared import streams
from houston_shared.errors import HoustonError
from houston_shared.safe_text import safe


def line(text: str = "") -> None:
    """One safe line of text on stdout."""
    with writing():
        sys.stdout.write(safe(text) + "\n")


def flush() -> None:
    """Let a reader at the pipe's end see now what was written."""
    with writing():
        sys.stdout.flush()


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Around what writes to stdout; raises HoustonError where that is not possible.

    A reader that has gone (head, less) is no such problem: BrokenPipeError is left as it is.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        streams.abandon()
        raise HoustonError(
            f"Standard output cannot be written: {problem.strerror}.", "Not everything was shown."
        ) from None


def json_line(value: Any) -> None:
    """One JSON object on stdout; flushed, so that a reader at the pipe's end sees it now."""
    # JSON escapes C0 itself; C1 and bidi controls are escaped here, for terminals.
    text = msgspec.json.encode(value).decode()
    if not streams.unicode() or safe(text) != text:
        text = "".join(map(_ascii, text))
    with writing():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _ascii(character: str) -> str:
    # Marks one by one are harmless, a flood of them is not: that this text is not safe is known.
    hostile = character != "\n" and (safe(character) != character or combining(character) > 0)
    if not hostile and (character.isascii() or streams.unicode()):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def note(text: str) -> None:
    """One safe line on stderr: progress, never data."""
    with contextlib.suppress(OSError):  # nobody can be told that nobody can be told
        sys.stderr.write(safe(text) + "\n")
        sys.stderr.flush()


def error(problem: HoustonError) -> None:
    """An error as cause, effect and next command on stderr."""
    text = f"houston: {problem.cause}"
    if problem.effect:
        text += f" {problem.effect}"
    if problem.next:
        text += f"\n  next: {problem.next}"
    note(text)
