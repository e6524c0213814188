"""Finishes the word before the cursor: files that the agent changed, and steps. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_WORD = re.compile(r"[\w./+@:~-]+$")
SHOWN = 5
"""Words that are shown at once."""


class Offer(NamedTuple):
    """Words that may be meant, one of which is taken."""

    typed: str
    words: tuple[str, ...]
    at: int = 0

    @property
    def taken(self) -> str:
        """The word in place of what was typed."""
        return self.words[self.at]

    def next(self) -> "Offer":
        """The same with the next word."""
        return self._replace(at=(self.at + 1) % len(self.words))

    def said(self) -> str:
        """The words near the one that is taken, for the person."""
        first = max(0, min(self.at - 1, len(self.words) - SHOWN))
        shown = range(first, min(first + SHOWN, len(self.words)))
        words = "   ".join(f"‹{self.words[i]}›" if i == self.at else self.words[i] for i in shown)
        return f"{self.at + 1}/{len(self.words)}   {words}"


def offer(before: str, candidates: Sequence[str]) -> Offer | None:
    """What may be meant by the end of `before`; None when nothing begins or contains that.

    Candidates that begin with it come first, then those of which a part (after `/` or a space)
    does, then those that contain it; each group in the given order.
    """
    found = _WORD.search(before)
    typed = found.group() if found else ""
    low = typed.lower()
    groups: tuple[list[str], ...] = ([], [], [])
    for word in dict.fromkeys(candidates):
        at = word.lower().find(low)
        parts = re.split(r"[/ ]", word.lower())
        if at == 0:
            groups[0].append(word)
        elif any(part.startswith(low) for part in parts):
            groups[1].append(word)
        elif at > 0:
            groups[2].append(word)
    words = tuple(word for group in groups for word in group if word != typed)
    return Offer(typed, words) if words else None
