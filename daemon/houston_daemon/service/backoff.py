"""Longer and longer waits before what failed is tried again."""

from collections.abc import Iterable


class Backoff:
    """The failures in a row of one thing; it waits `first` seconds, then twice that, and so on."""

    def __init__(self, first: float = 1.0, longest: float = 60.0) -> None:
        self._first = first
        self._longest = longest
        self.failures = 0
        self.not_before = 0.0
        """Monotonic time of the next try; may also be set to make it wait for another reason."""

    def fail(self, now: float, first: bool = False) -> float:
        """Count a failure; returns the seconds to wait. first: it had worked since the last one."""
        self.failures = 1 if first else self.failures + 1
        delay = self._first * 2.0 ** min(self.failures - 1, 60)  # a float has no 2 ** 1024
        delay = min(self._longest, delay)
        self.not_before = now + delay
        return delay

    def seconds_left(self, now: float) -> float:
        """How long it waits still."""
        return max(0.0, self.not_before - now)


def next_try(waiting: Iterable[Backoff], now: float) -> float | None:
    """When the first of them is tried again, monotonic; None where none waits."""
    return min((each.not_before for each in waiting if each.not_before > now), default=None)
