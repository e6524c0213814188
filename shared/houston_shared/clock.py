"""Wall time as it is stored (UTC microseconds) and as JSON writes it (ISO 8601 with Z)."""

import time
from datetime import UTC, datetime


def now_us() -> int:
    """Wall time, microseconds since 1970 in UTC."""
    return time.time_ns() // 1000


def iso(at_us: int) -> str:
    """`at_us` as ISO 8601 in UTC with microseconds and Z."""
    stamp = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def local(at_us: int) -> str:
    """`at_us` in local time with its offset, to the second: for people."""
    stamp = datetime.fromtimestamp(at_us / 1_000_000).astimezone()
    return stamp.strftime("%Y-%m-%d %H:%M:%S%z")
