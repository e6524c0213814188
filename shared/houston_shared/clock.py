"""Wall time as it is stored (UTC microseconds) and as JSON writes it (ISO 8601 with Z)."""

import time
from datetime import UTC, datetime

_shift_us = 0


def now_us() -> int:
    """Wall time, microseconds since 1970 in UTC."""
    return time.time_ns() // 1000 + _shift_us


def shift(seconds: float) -> None:
    """From now on this process's wall clock reads `seconds` later; only `faults` does that."""
    global _shift_us
    _shift_us += int(seconds * 1_000_000)


def iso(at_us: int) -> str:
    """`at_us` as ISO 8601 in UTC with microseconds and Z."""
    stamp = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def local(at_us: int) -> str:
    """`at_us` in local time with its offset, to the second: for people."""
    stamp = datetime.fromtimestamp(at_us / 1_000_000).astimezone()
    return stamp.strftime("%Y-%m-%d %H:%M:%S%z")
