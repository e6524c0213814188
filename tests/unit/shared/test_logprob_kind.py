"""What log-probabilities may be called, by how the tokens were drawn."""

from typing import Any

import pytest

from houston_daemon.engines.logprob_kind import sampling_parameters, true_logprob_kind
from houston_shared.records import LogprobKind

CASES: dict[str, tuple[dict[str, Any], LogprobKind]] = {
    "as the model says": ({"temperature": 1.0, "top_p": 1.0, "max_tokens": 9}, "policy"),
    "nothing is known": ({}, "before_temperature"),
    "what bends nothing": (
        {"temperature": 1, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
        "policy",
    ),
    "no limit of tops": ({"temperature": 1, "top_k": 0}, "policy"),
    "colder": ({"temperature": 0.7}, "before_temperature"),
    "hotter": ({"temperature": 1.3}, "before_temperature"),
    "greedy": ({"temperature": 0}, "before_temperature"),
    "a nucleus": ({"temperature": 1, "top_p": 0.9}, "before_temperature"),
    "the first twenty": ({"top_k": 20}, "before_temperature"),
    "a floor": ({"min_p": 0.05}, "before_temperature"),
    "a penalty": ({"presence_penalty": 0.5}, "before_temperature"),
    "a grammar that an engine did not tell of": ({"grammar": "ab12"}, "before_temperature"),
}


@pytest.mark.parametrize("case", CASES)
def test_only_what_was_drawn_as_the_model_says_is_the_policys(case: str) -> None:
    parameters, kind = CASES[case]
    assert true_logprob_kind("policy", parameters) == kind
    assert "max_tokens" not in sampling_parameters(parameters)


@pytest.mark.parametrize("kind", ["none", "after_grammar", "after_temperature"])
def test_other_kinds_stay(kind: LogprobKind) -> None:
    assert true_logprob_kind(kind, {"temperature": 0.7}) == kind
