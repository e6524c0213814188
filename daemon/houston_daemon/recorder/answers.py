"""How many messages of workers were answered, and how long they took: from receipt to answer."""

from collections import deque

_REMEMBER = 1_000
"""Turns whose times the p99 is taken from."""


class Answers:
    """Belongs to the recorder's thread."""

    def __init__(self) -> None:
        self.count = 0
        """Messages of workers answered since the start."""
        self._seconds: deque[float] = deque(maxlen=_REMEMBER)

    def note(self, messages: int, seconds: float) -> None:
        """A turn answered so many messages, the earliest received `seconds` ago."""
        if messages:
            self.count += messages
            self._seconds.append(seconds)

    def p99_ms(self) -> float:
        """99th percentile of recent turns, milliseconds; 0 before the first."""
        ordered = sorted(self._seconds)
        return ordered[int(0.99 * (len(ordered) - 1))] * 1e3 if ordered else 0.0
