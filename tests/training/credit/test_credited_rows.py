"""Credit beside tokens: which tokens get an advantage, and which are trained."""

from array import array
from dataclasses import replace

import pytest

from houston_daemon.training.credit.credited_rows import (
    OUTCOME_ONLY,
    CreditedRow,
    ProcessCredit,
    RolloutCredit,
    SpanCredit,
    credit_rollout,
)
from houston_daemon.training.credit.policy_gradient_rows import policy_gradient_row
from houston_daemon.training.rows.training_row import BrokenRow, SampledSpan, TokenRow


def span(start: int, end: int, step: int, weight: float = 1.0, kind: str = "policy") -> SampledSpan:
    return SampledSpan(
        start=start,
        end=end,
        step=step,
        attempt=1,
        role="policy",
        sample_seq=step,
        policy="p@2",
        policy_hash="h",
        weight=weight,
        why="" if weight else "masked",
        logprob_kind=kind,  # type: ignore[arg-type]
        sampling={},
        guided=False,
    )


def row(*spans: SampledSpan, tokens: int = 12) -> TokenRow:
    return TokenRow(
        id="r/0.0",
        kind="react",
        rollout="r",
        task="t",
        group="g",
        domain="",
        context=0,
        source="ledger",
        provenance="none",
        token_ids=array("i", range(10, 10 + tokens)),
        spans=spans,
        logprobs={0: array("f", [-0.5] * (spans[0].end - spans[0].start))},
    )


def credited(
    *rows: TokenRow,
    reward: float = 1.0,
    advantage: float = 0.5,
    masked: str = "",
    process: ProcessCredit = OUTCOME_ONLY,
) -> list[CreditedRow]:
    credit = RolloutCredit("r", reward, advantage, masked, 0, "0.0-train-1", process)
    return list(credit_rollout(rows, credit))


def test_an_outcome_is_every_answers_advantage_and_the_last_ones_reward() -> None:
    (given,) = credited(row(span(3, 5, 1), span(7, 10, 2)), advantage=-0.7)
    assert given.advantages().tolist() == pytest.approx(
        [0, 0, 0, -0.7, -0.7, 0, 0, -0.7, -0.7, -0.7, 0, 0]
    )
    assert given.mask().tolist() == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0]
    assert [(credit.reward, credit.returned) for credit in given.credits] == [
        (0.0, 1.0),
        (1.0, 1.0),
    ]


def test_what_weighs_nothing_is_not_trained_whatever_its_advantage() -> None:
    (given,) = credited(row(span(3, 5, 1, weight=0.0), span(7, 10, 2)), advantage=2.0)
    assert given.mask().tolist() == [0] * 7 + [1] * 3 + [0] * 2
    assert given.trained == 3


def test_a_rollout_that_was_broken_off_keeps_its_credit_and_trains_nothing() -> None:
    (given,) = credited(row(span(3, 5, 1)), reward=-1.0, advantage=-1.0, masked="cut by a limit")
    assert given.trained == 0
    assert policy_gradient_row(given) is None


def test_a_row_for_the_loss_begins_and_ends_with_trained_tokens() -> None:
    (given,) = credited(row(span(3, 5, 1), span(7, 10, 2)))
    cut = policy_gradient_row(given)
    assert cut is not None
    assert (cut.prompt, cut.completion) == ([10, 11, 12], list(range(13, 20)))
    assert cut.mask == [1, 1, 0, 0, 1, 1, 1]
    assert cut.sampled_logprobs[:2] == [-0.5, -0.5]
    assert all(value != value for value in cut.sampled_logprobs[2:])  # NaN: nobody said


@pytest.mark.parametrize("kind", ["before_temperature", "after_grammar", "none"])
def test_only_the_probability_of_the_draw_is_a_ratio(kind: str) -> None:
    """Others are off by up to 22 nats an answer."""
    (given,) = credited(row(span(3, 5, 1, kind=kind)))
    cut = policy_gradient_row(given)
    assert cut is not None
    assert all(value != value for value in cut.sampled_logprobs)


def test_each_decision_is_given_its_own_share_beside_the_outcome() -> None:
    """Weight 0.25: a quarter of a decision's own worth, three quarters of the outcome's."""
    process = ProcessCredit(0.25, {1: 1.0, 2: 0.2}, {1: 2.0, 2: -2.0})
    (given,) = credited(
        row(span(3, 5, 1), span(7, 10, 2)), reward=-1.0, advantage=-0.4, process=process
    )
    assert [credit.advantage for credit in given.credits] == pytest.approx([0.2, -0.8])
    assert [credit.reward for credit in given.credits] == pytest.approx([0.25, -0.7])
    assert [credit.returned for credit in given.credits] == pytest.approx([-0.45, -0.7])


def test_an_answer_that_decides_no_step_has_the_outcome_alone() -> None:
    """A summary before step 2, and a step that nobody scored."""
    process = ProcessCredit(1.0, {2: 0.9}, {2: 3.0})
    summary = replace(span(3, 5, 2), role="summary")
    (given,) = credited(row(summary, span(7, 10, 3)), advantage=2.0, process=process)
    assert [credit.advantage for credit in given.credits] == [0.0, 0.0]


def test_a_summary_is_followed_by_the_step_that_it_stands_before() -> None:
    """Summaries before steps 2 and 3; step 3 is the last one. Weight 0.5."""
    process = ProcessCredit(0.5, {1: 0.2, 2: 0.4, 3: 0.8})
    first, second = (
        replace(span(at, at + 1, step), role="summary") for at, step in ((3, 2), (7, 3))
    )
    decided = [span(1, 2, 1), first, span(5, 6, 2), second, span(9, 10, 3)]
    (given,) = credited(row(*decided), reward=1.0, process=process)
    returns = [0.7 + 0.5, 0.6 + 0.5, 0.6 + 0.5, 0.4 + 0.5, 0.4 + 0.5]
    assert [credit.returned for credit in given.credits] == pytest.approx(returns)
    rewards = [0.1, 0.0, 0.2, 0.0, 0.4 + 0.5]
    assert [credit.reward for credit in given.credits] == pytest.approx(rewards)


def test_the_outcome_stands_at_the_last_summary_where_only_those_have_rows() -> None:
    spans = [replace(span(at, at + 1, step), role="summary") for at, step in ((3, 2), (7, 3))]
    (given,) = credited(row(*spans), reward=1.0)
    assert [credit.reward for credit in given.credits] == [0.0, 1.0]


def test_credit_is_for_each_span() -> None:
    with pytest.raises(BrokenRow):
        CreditedRow(row(span(3, 5, 1)), (SpanCredit(0, 0, 0), SpanCredit(0, 0, 0)))
