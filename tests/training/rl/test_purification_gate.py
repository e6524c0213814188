"""The importance-ratio gate by values that were computed by hand."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest

from houston_daemon.training.credit.policy_gradient_rows import PolicyGradientRow
from houston_daemon.training.rl.purification_gate import (
    KEPT_RAW_REASON,
    PurificationGate,
    common_ending,
    geometric_mean_ratio,
)
from houston_daemon.training.rows.training_row import SampledSpan, TokenRow

HEAD, THOUGHT, FAILED, NOTE = [1, 2, 3], [10, 11], [20, 21], [30]
CALL = [40, 41, 42, 43]
SAID = [math.log(0.5), math.log(0.8), math.log(0.5), math.log(0.8)]
"""Of the correction's call, with the failure in view: 0.5 · 0.8 · 0.5 · 0.8 = 0.16."""


def span(start: int, end: int, attempt: int, kind: str = "policy") -> SampledSpan:
    return SampledSpan(
        start=start,
        end=end,
        step=1,
        attempt=attempt,
        role="lookahead" if attempt == 2 else "policy",
        sample_seq=attempt,
        policy="",
        policy_hash="",
        weight=1.0,
        why="",
        logprob_kind=kind,  # type: ignore[arg-type]
        sampling={},
        guided=False,
    )


def row(id: str, ids: Sequence[int], *spans: SampledSpan, said: Sequence[float] = ()) -> TokenRow:
    last = len(spans) - 1
    return TokenRow(
        id=id,
        kind="react",
        rollout="r",
        task="t",
        group="",
        domain="",
        context=0,
        source="ledger",
        provenance="none",
        token_ids=array("i", ids),
        spans=spans,
        logprobs={last: array("f", said)} if said else {},
    )


def shallow(said: Sequence[float] = (-0.1, *SAID)) -> tuple[TokenRow, TokenRow]:
    """The first thought with the corrected call; and what was sampled: thought and failed call,
    then another thought (12) with the call."""
    purified = row("r/0.0", HEAD + THOUGHT + CALL, span(3, 9, 3, "none"))
    ids = HEAD + THOUGHT + FAILED + NOTE + [12] + CALL
    return purified, row("r/raw.1", ids, span(3, 7, 1), span(8, 13, 2), said=said)


def gate(least: float, probabilities: Sequence[float]) -> tuple[PurificationGate, list[list[int]]]:
    """One whose policy says the tokens of the purified answer with these probabilities."""
    asked: list[list[int]] = []

    def logprobs(rows: Sequence[PolicyGradientRow]) -> list[list[float]]:
        asked.extend(one.completion for one in rows)
        return [[math.log(value) for value in probabilities] for _ in rows]

    return PurificationGate(least, logprobs), asked


@pytest.mark.parametrize(
    ("call", "ratio"),
    [
        ((0.5, 0.8, 0.5, 0.8), 1.0),
        ((0.1, 0.1, 1.0, 1.0), 0.5),  # (0.01 / 0.16) ** (1/4)
        ((0.01, 0.01, 1.0, 1.0), 0.5 / math.sqrt(10)),  # (1e-4 / 0.16) ** (1/4)
        ((1.0, 1.0, 1.0, 1.0), 1 / math.sqrt(0.4)),  # above 1: more likely than it was
    ],
)
def test_a_shallow_step_is_judged_by_its_calls(call: Sequence[float], ratio: float) -> None:
    """Its thought was said in this context: 1e-6 for its tokens counts for nothing."""
    purified, raw = shallow()
    decider, asked = gate(0.4, (1e-6, 1e-6, *call))
    trained = decider.decide([purified], [raw])
    assert asked == [THOUGHT + CALL]
    assert decider.figures.ratio == pytest.approx(ratio, rel=1e-6)
    assert decider.figures.checked == 1
    if ratio >= 0.4:
        assert trained == [purified]
        assert decider.figures.kept_raw == 0
    else:
        assert [one.id for one in trained] == ["r/0.0", "r/raw.1"]
        assert [(one.weight, one.why) for one in trained[0].spans] == [(0.0, KEPT_RAW_REASON)]
        assert trained[1] is raw
        assert decider.figures.kept_raw == 1


def test_a_deep_step_is_judged_by_thought_and_calls() -> None:
    purified = row("r/0.0", [*HEAD, 12, *CALL], span(3, 8, 3, "none"))
    decider, _ = gate(0.5, (0.01, 1.0, 1.0, 1.0, 1.0))
    decider.decide([purified], [shallow((math.log(0.32), 0.0, 0.0, 0.0, 0.0))[1]])
    assert decider.figures.ratio == pytest.approx(0.5, rel=1e-6)  # (0.01 / 0.32) ** (1/5)


def test_the_ledger_says_how_many_tokens_are_the_corrections() -> None:
    """Its thought ends as the first one did, which was said in this context."""
    first = replace(span(3, 9, 3, "none"), corrected=len(CALL))
    purified = row("r/0.0", HEAD + THOUGHT + CALL, first)
    ids = HEAD + THOUGHT + FAILED + NOTE + [*THOUGHT, *CALL]
    raw = row("r/raw.1", ids, span(3, 7, 1), span(8, 14, 2), said=(-0.1, -0.1, *SAID))
    decider, _ = gate(0.4, (1e-6, 1e-6, 0.5, 0.8, 0.5, 0.8))
    assert decider.decide([purified], [raw]) == [purified]
    assert decider.figures.ratio == pytest.approx(1.0, rel=1e-6)


def test_a_step_of_which_the_engine_said_nothing_is_kept_raw() -> None:
    purified, raw = shallow(said=())
    decider, _ = gate(1e-9, (1.0,) * 6)
    assert len(decider.decide([purified], [raw])) == 2
    assert decider.figures.ratio == 0.0


def test_a_step_that_was_not_purified_is_not_asked_about() -> None:
    plain = row("r/0.0", HEAD + THOUGHT + FAILED, span(3, 7, 1), said=[-0.1] * 4)
    decider, asked = gate(1.0, ())
    failed_corrections = shallow()[1]
    assert decider.decide([plain], [failed_corrections]) == [plain]
    assert asked == []
    assert decider.figures.checked == 0


def test_endings_and_means() -> None:
    assert common_ending([1, 2, 3], [9, 2, 3]) == 2
    assert common_ending([1], [2]) == 0
    assert common_ending([1, 2], [1, 2]) == 2
    assert geometric_mean_ratio([math.log(0.2), math.log(0.1)], [math.log(0.4)] * 2) == (
        pytest.approx(math.sqrt(0.125))
    )
