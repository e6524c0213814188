"""What a pattern must find: runs that every match holds, and silence where that is not certain."""

import random

import pytest
import regex

from houston_shared.store.search_matching import required_runs

PATTERNS: dict[str, list[str]] = {
    r"quasar \d+": ["quasar "],
    "a?bc*def+g": ["b", "def", "g"],
    "x{2,3}yz": ["yz"],
    r"[^]a]foo\.bar": ["foo.bar"],
    "^loss$": ["loss"],
    "重力[^。]*波": ["重力", "波"],
    "a|b": [],
    "(?i)word": [],
    "foo[[:alpha:]]": [],
    r"\x41bc": [],
    "ends in \\": [],
    "a[b": [],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_runs_of_a_pattern(pattern: str) -> None:
    assert required_runs(pattern) == PATTERNS[pattern]


def test_no_match_lacks_a_run() -> None:
    chance, matched = random.Random(7), 0
    for _ in range(20_000):
        signs = chance.randint(1, 7)
        pattern = "".join(chance.choice("abc.\\*+?{}[]^$1d ,-") for _ in range(signs))
        text = "".join(chance.choice("abcd1 .,-{}[]^$+*?\\") for _ in range(12))
        if not required_runs(pattern):
            continue
        try:
            match = regex.search(pattern, text, regex.IGNORECASE | regex.MULTILINE)
        except regex.error:
            continue
        if match and match.end() > match.start():
            matched += 1
            assert all(run.lower() in text.lower() for run in required_runs(pattern)), (
                pattern,
                text,
            )
    assert matched > 500
