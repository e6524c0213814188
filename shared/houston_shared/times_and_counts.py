"""Times, durations and counts as they are stored, and as people and JSON read them.

Wall time is stored as UTC microseconds; JSON writes ISO 8601 with Z, people read local time. A
duration has one form for sentences, one for columns, one that is exact to the second, and one for
how long ago. Counts get their noun (`1 row`, `2,500 rows`), and texts their number of words, where
Chinese characters and kana count one by one. It reads no other clock than the wall's.
"""

import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime


def now_us() -> int:
    """Wall time, microseconds since 1970 in UTC."""
    return time.time_ns() // 1000


def iso_time(at_us: int) -> str:
    """`at_us` as ISO 8601 in UTC with microseconds and Z."""
    stamp = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def local_time(at_us: int) -> str:
    """`at_us` in local time with its offset, to the second: for people."""
    stamp = datetime.fromtimestamp(at_us / 1_000_000).astimezone()
    return stamp.strftime("%Y-%m-%d %H:%M:%S%z")


NO_DURATION = "–"
"""What stands for a duration that is not known."""
MAX_MINUTES = 100
"""From so many minutes on, hours are written."""
MAX_HOURS = 48
"""From so many hours on, days are written."""
MAX_SECONDS = 1e9
"""No duration reads as more, whatever a stored task says."""


def format_duration(seconds: float | None) -> str:
    """A duration in a sentence: `0.3 s`, `45 s`, `12 min`, `3 h 05 min`, `4 days 3 h`."""
    if seconds is None:
        return NO_DURATION
    seconds = _clamp(seconds)
    if seconds < 99.5:
        return f"{seconds:.1f} s" if 0 < seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < MAX_MINUTES:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < MAX_HOURS:
        return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


def format_compact_duration(seconds: float | None) -> str:
    """A duration in a column, what has passed of it: `40s`, `57m`, `3h05`, `30h`, `2d04h`.

    At most six characters below 1,000 days.
    """
    if seconds is None:
        return NO_DURATION
    seconds = int(_clamp(seconds))
    minutes = seconds // 60
    if minutes < 1:
        return f"{seconds}s"
    if minutes < MAX_MINUTES:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < MAX_HOURS:
        return f"{hours}h{minutes:02}" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h" if hours else f"{days}d"


def format_clock(seconds: float | None) -> str:
    """A duration to the second, `h:mm:ss`, where moments of a rollout are told apart."""
    if seconds is None:
        return NO_DURATION
    whole_seconds = int(_clamp(seconds))
    return f"{whole_seconds // 3600}:{whole_seconds // 60 % 60:02}:{whole_seconds % 60:02}"


def _clamp(seconds: float) -> float:
    """Zero for a negative duration, which a clock that was set back gives."""
    return min(max(seconds, 0.0), MAX_SECONDS)


def format_age(at: int, now: int) -> str:
    """How long ago a moment was, in one unit; no seconds, they would be drawn every second.

    at, now: UTC microseconds.
    """
    minutes = max(0, now - at) // 60_000_000
    if minutes < 1:
        return "just now"
    if minutes < MAX_MINUTES:
        return f"{minutes} min ago"
    hours = minutes // 60
    return f"{hours} h ago" if hours < MAX_HOURS else f"{hours // 24} days ago"


def pluralize(count: int, noun: str) -> str:
    """A count of things whose name takes an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def join_first(names: Sequence[str], limit: int) -> str:
    """At most so many of the names, and how many more there are: `a, b and 3 more`."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")


def number_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of numbers that follow each other: (first, last) of each."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


_UNSPACED_SCRIPTS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_WORD_PATTERN = rf"[{_UNSPACED_SCRIPTS}]|(?:(?![{_UNSPACED_SCRIPTS}])\w)+(?:['’-]\w+)*"


def count_words(text: str) -> int:
    """Number of words; a Chinese or Japanese character counts as one."""
    return sum(1 for _ in re.finditer(_WORD_PATTERN, text))


def format_cost(cost: float) -> str:
    """An amount of money: two decimals, or four significant digits below one."""
    return f"{cost:,.2f}" if cost >= 1 or not cost else f"{cost:.4g}"
