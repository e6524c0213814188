"""Cutting a long text in its middle, and saying so where it was cut."""

from collections.abc import Sequence

NOTE_TOKENS = 24
"""What the note about the cut takes."""


OBSERVATION = "the observation"


def cut(text: str, limit: int, offsets: Sequence[tuple[int, int]], what: str = OBSERVATION) -> str:
    """The first two thirds and the last third of `limit` tokens, with a note between.

    offsets: start and end of each token in `text`, in characters. what: what was too long, for the
    note. A text that fits comes back as it is.
    """
    if len(offsets) <= limit:
        return text
    room = max(2, limit - NOTE_TOKENS)
    first = offsets[room - room // 3][0]
    last = offsets[len(offsets) - room // 3][0] if room // 3 else len(text)
    note = f"\n[… {last - first} characters cut: {what} was too long …]\n"
    return text[:first] + note + text[last:]
