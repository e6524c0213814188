"""What the agent of a branch is told of files that its world lacks."""

from collections.abc import Sequence

from houston_shared.safe_text import safe_line

NAMED = 20
"""Paths that are named; the others are counted."""
_LONGEST = 120


def told(paths: Sequence[str]) -> tuple[str, ...]:
    """The line about files that could not be brought back; nothing where there are none."""
    if not paths:
        return ()
    names = ", ".join(str(safe_line(path))[:_LONGEST] for path in paths[:NAMED])
    more = f", and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return (f"[these files could not be brought back: {names}{more}]",)
