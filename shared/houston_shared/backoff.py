"""How long to wait before a failed operation is tried again: longer each time, or as a server
asked.

`RetryPolicy` says how long to wait after how many failures; `Backoff` counts the failures of one
operation. Callers decide what is tried again, and after which failures.
"""

import math
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long something is tried again."""

    attempts: int = 6
    """Tries in all."""
    first_wait: float = 0.25
    """Seconds before the second one; doubled each time."""
    max_wait: float = 8.0
    """Longest wait of our own choosing, in seconds."""
    max_retry_after: float = 60.0
    """Longest wait that a server's Retry-After is given, in seconds."""
    jitter: tuple[float, float] = (1.0, 1.25)
    """Waits are multiplied by a number between these: who fails together comes back apart."""

    def wait(self, failed: int, retry_after: float | None = None) -> float:
        """Seconds to wait after `failed` tries, the last of which asked for so many."""
        if retry_after is not None:
            return min(retry_after, self.max_retry_after)
        doubled = self.first_wait * 2.0 ** min(failed - 1, 60)  # a float has no 2 ** 1024
        return min(doubled, self.max_wait) * random.uniform(*self.jitter)


class Backoff:
    """The failures in a row of one thing; it waits `first` seconds, then twice that, and so on."""

    def __init__(self, first: float = 1.0, longest: float = 60.0) -> None:
        self._policy = RetryPolicy(first_wait=first, max_wait=longest, jitter=(1.0, 1.0))
        self.failures = 0
        self.not_before = 0.0
        """Monotonic time of the next try; may also be set to make it wait for another reason."""

    def fail(self, now: float, first: bool = False) -> float:
        """Count a failure; returns the seconds to wait. first: it had worked since the last one."""
        self.failures = 1 if first else self.failures + 1
        delay = self._policy.wait(self.failures)
        self.not_before = now + delay
        return delay

    def seconds_left(self, now: float) -> float:
        """How long it waits still."""
        return max(0.0, self.not_before - now)


def next_try(waiting: Iterable[Backoff], now: float) -> float | None:
    """When the first of them is tried again, monotonic; None where none waits."""
    return min(
        (backoff.not_before for backoff in waiting if backoff.not_before > now), default=None
    )


def parse_retry_after(value: str) -> float | None:
    """Seconds that a Retry-After header asks to wait (a number or a date, RFC 9110, 10.2.3).

    None where it says nothing that can be read: then our own backoff decides.
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
