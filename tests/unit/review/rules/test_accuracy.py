"""Precision and recall of the rules on judged cases: none may fall below what was aimed at."""

import pytest

from houston_daemon.review.rules import rule_catalog
from tests.support import rule_cases

PRECISION, RECALL = 0.9, 0.8
CASES = rule_cases.cases()
FIGURES = rule_cases.accuracy(CASES)


def test_there_are_cases_enough_and_each_has_its_own_name() -> None:
    assert len(CASES) >= 50
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(case.held_out for case in CASES) >= 10
    assert sum(not case.expected for case in CASES) >= len(CASES) / 3, "what is kept counts as much"
    assert FIGURES.keys() == rule_catalog.RULES.keys(), "each rule has a case"


@pytest.mark.parametrize("rule", rule_catalog.RULES)
def test_a_rule_is_right(rule: str) -> None:
    figures = FIGURES[rule]
    assert figures.precision >= PRECISION, figures
    assert figures.recall >= RECALL, figures
