"""A duration reads the same wherever it stands: in a sentence, a column, on a clock, as an age."""

import pytest

from houston_shared.times_and_counts import (
    format_age,
    format_clock,
    format_compact_duration,
    format_duration,
)

HOUR, DAY = 3_600.0, 86_400.0

DURATIONS = [
    (None, "–", "–", "–"),
    (-5.0, "0 s", "0s", "0:00:00"),
    (0.0, "0 s", "0s", "0:00:00"),
    (0.4, "0.4 s", "0s", "0:00:00"),
    (9.96, "10 s", "9s", "0:00:09"),
    (59.9, "60 s", "59s", "0:00:59"),
    (60.0, "60 s", "1m", "0:01:00"),
    (99.4, "99 s", "1m", "0:01:39"),
    (99.6, "2 min", "1m", "0:01:39"),
    (3_599.0, "60 min", "59m", "0:59:59"),
    (5_969.0, "99 min", "99m", "1:39:29"),
    (5_970.0, "1 h 40 min", "99m", "1:39:30"),
    (6_000.0, "1 h 40 min", "1h40", "1:40:00"),
    (3 * HOUR, "3 h", "3h", "3:00:00"),
    (25 * HOUR, "25 h", "25h", "25:00:00"),
    (48 * HOUR, "2 days", "2d", "48:00:00"),
    (52.5 * HOUR, "2 days 4 h", "2d04h", "52:30:00"),
    (99.95 * DAY, "99 days 22 h", "99d22h", "2398:48:00"),
    (float("inf"), "11574 days 1 h", "11574d01h", "277777:46:40"),
]


@pytest.mark.parametrize(("seconds", "sentence", "column", "clock"), DURATIONS)
def test_a_duration(seconds: float | None, sentence: str, column: str, clock: str) -> None:
    assert format_duration(seconds) == sentence
    assert format_compact_duration(seconds) == column
    assert format_clock(seconds) == clock


AGES = [
    (-1.0, "just now"),
    (59.9, "just now"),
    (60.0, "1 min ago"),
    (3_599.0, "59 min ago"),
    (6_000.0, "1 h ago"),
    (47.9 * HOUR, "47 h ago"),
    (71.0 * HOUR, "2 days ago"),
]


@pytest.mark.parametrize(("seconds", "text"), AGES)
def test_an_age_has_one_unit_and_no_seconds(seconds: float, text: str) -> None:
    now_us = 1_700_000_000_000_000
    assert format_age(now_us - int(seconds * 1e6), now_us) == text
