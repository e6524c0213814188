"""The report of an evaluation, as people read it."""

import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from houston_daemon.suites.evaluation_report import report_json, report_lines
from tests.unit.suites.test_suite_results import run


def lines(*runs: tuple[str, ...]) -> list[str]:
    return list(report_lines(report_json([run(*worlds) for worlds in runs])))


def test_one_run_has_a_column_of_its_own_and_no_difference() -> None:
    said = lines(("10", "00"))
    assert said[0] == "word-worlds, test: 2 tasks, 2 attempts each; intervals of 95 %"
    assert said[1].strip() == "base on e"
    assert [line.split()[0] for line in said[2:4]] == ["pass@1", "pass@2"]
    assert not any("flips" in line or "difference" in line for line in said)


@pytest.mark.parametrize(
    ("before", "after", "flips", "verdict"),
    [
        ("0" * 20, "1" * 15 + "0" * 5, "+15 −0", "is beyond chance: +0.750"),
        ("1" * 15 + "0" * 5, "0" * 20, "+0 −15", "is beyond chance: -0.750"),
        ("0011" * 5, "0101" * 5, "+5 −5", "may be chance: +0.000"),
        ("0" * 20, "1" * 5 + "0" * 15, "+5 −0", "may be chance: +0.250"),
        ("1010", "1010", "+0 −0", "may be chance: +0.000"),
        (["000"] * 5, ["111"] * 5, "+5 −0", "may be chance: +1.000"),
        (["000"] * 6, ["111"] * 6, "+6 −0", "is beyond chance: +1.000"),
    ],
    ids=[
        "much better",
        "much worse",
        "moved about",
        "five of twenty",
        "the same",
        "five tasks, three attempts",
        "six tasks, three attempts",
    ],
)
def test_the_last_sentence_says_whether_it_may_be_chance(
    before: Sequence[str], after: Sequence[str], flips: str, verdict: str
) -> None:
    said = lines(tuple(before), tuple(after))
    assert f"flips: {flips}" in said
    assert said[-1].startswith(f"The difference in pass@1 {verdict}")


def test_arms_of_one_policy_are_told_apart() -> None:
    said = lines(("1", "0"), ("11", "10", "00"))
    assert "2 tasks, 1 attempt each before; 3 tasks, 2 attempts each after;" in said[0]
    assert re.split("  +", said[1].strip()) == [
        "before: base on e", "after: base on e", "difference"
    ]  # fmt: skip


def test_arms_that_decode_otherwise_are_told() -> None:
    before, after = run("1", "0"), replace(run("1", "1"), agent="flow", temperature=0.5)
    report = report_json([before, after])
    assert report["difference"]["unlike"] == ["agent", "temperature"]
    said = list(report_lines(report))
    assert "agent: as set in the tasks before, flow after; the difference includes that." in said
    assert not report_json([after, after])["difference"]["unlike"]


def test_of_many_flips_some_names_are_told_and_the_rest_counted() -> None:
    said = lines(tuple("0" * 20), tuple("1" * 20))
    (named,) = [line for line in said if line.startswith("  + ")]
    assert named.endswith("and 8 more")
