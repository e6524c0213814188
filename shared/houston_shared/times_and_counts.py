"""Times and counts as they are stored, and as people and JSON read them.

Wall time is stored as UTC microseconds; JSON writes ISO 8601 with Z, people read local time. Counts
get their noun (`1 row`, `2,500 rows`), and texts their number of words, where Chinese characters
and kana count one by one. It reads no other clock than the wall's.
"""

import re
import time
from collections.abc import Iterable
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


def pluralize(count: int, noun: str) -> str:
    """A count of things whose name takes an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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
