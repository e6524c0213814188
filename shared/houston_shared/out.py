"""What commands write: safe lines and JSON Lines on stdout, sentences on stderr."""

import sys
from typing import Any

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.safe_text import safe


def line(text: str = "") -> None:
    """One safe line of text on stdout."""
    sys.stdout.write(safe(text) + "\n")


def json_line(value: Any) -> None:
    """One JSON object on stdout; flushed, so that a reader at the pipe's end sees it now."""
    # JSON escapes C0 itself; C1 and bidi controls are escaped here, for terminals.
    text = msgspec.json.encode(value).decode()
    sys.stdout.write((text if safe(text) == text else "".join(map(_ascii, text))) + "\n")
    sys.stdout.flush()


def _ascii(character: str) -> str:
    hostile = character != "\n" and safe(character) != character
    if not hostile:
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def note(text: str) -> None:
    """One safe line on stderr: progress, never data."""
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
