"""The door of rows: what a row may be, what its weights and labels are, and what a cut leaves."""

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.training.rows.training_row import (
    IGNORED_LABEL,
    BrokenRow,
    ChatMessage,
    ChatRow,
    TokenRow,
)
from houston_shared.records import Message
from tests.support.synthetic_rows import KEPT, MASKED, made, span
from tests.training.rows.row_truncation import truncated

answers = st.lists(st.tuples(st.integers(1, 6), st.sampled_from([KEPT, MASKED])), max_size=6)


def test_only_trained_spans_have_weights_and_labels() -> None:
    row = made([(2, KEPT), (2, MASKED)], head=2, observation=1, first=10)
    assert list(row.token_ids) == [10, 11, 12, 13, 14, 15, 16, 17]
    assert list(row.weights()) == [0, 0, 1, 1, 0, 0, 0, 0]
    assert list(row.labels()) == [-100, -100, 12, 13, -100, -100, -100, -100]
    assert (row.trained, row.sampled) == (2, 4)


@pytest.mark.parametrize(
    ("name", "spans"),
    [
        ("they overlap", (span(2, 5, 1), span(4, 6, 2))),
        ("not in order", (span(5, 6, 1), span(2, 3, 2))),
        ("past the end", (span(2, 99, 1),)),
    ],
)
def test_a_row_with_wrong_spans_never_exists(name: str, spans: tuple[object, ...]) -> None:
    with pytest.raises(BrokenRow):
        replace(made([]), spans=spans, token_ids=array("i", range(7)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": 3, "end": 3},
        {"start": -1},
        {"weight": 0.0},
        {"why": "masked"},
        {"weight": -1.0, "why": "less"},
    ],
)
def test_a_span_says_why_exactly_when_it_weighs_nothing(wrong: dict[str, object]) -> None:
    with pytest.raises(BrokenRow):
        replace(span(2, 5, 1), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("logprobs", [{0: array("f", [0.0])}, {7: array("f", [0.0])}])
def test_log_probabilities_belong_to_a_span(logprobs: dict[int, "array[float]"]) -> None:
    with pytest.raises(BrokenRow):
        replace(made(), logprobs=logprobs)


@given(answers, st.integers(0, 90))
def test_a_cut_row_has_the_weights_of_its_first_tokens(
    parts: list[tuple[int, float]], length: int
) -> None:
    row = made(parts)
    cut = truncated(row, length)
    assert list(cut.token_ids) == list(row.token_ids)[:length]
    assert list(cut.weights()) == list(row.weights())[:length]
    assert list(cut.labels()) == list(row.labels())[:length]
    assert all(
        list(values) == list(row.logprobs[index])[: len(values)]
        for index, values in cut.logprobs.items()
    )
    assert cut.id == row.id


@given(answers)
def test_labels_are_ids_exactly_where_there_is_weight(parts: list[tuple[int, float]]) -> None:
    row: TokenRow = made(parts)
    pairs = zip(row.weights(), row.labels(), row.token_ids, strict=True)
    assert all(label == (token if weight else IGNORED_LABEL) for weight, label, token in pairs)
    assert row.trained == sum(weight > 0 for weight in row.weights())


@pytest.mark.parametrize(
    ("role", "weight", "why"),
    [("tool", 1.0, ""), ("user", 1.0, ""), ("system", 1.0, ""), ("assistant", 1.0, "masked")],
)
def test_a_chat_row_trains_answers_only(role: str, weight: float, why: str) -> None:
    message = Message(role=role, content="x")  # type: ignore[arg-type]
    with pytest.raises(BrokenRow):
        ChatRow(
            id="r/0.0", kind="react", rollout="r", task="t", group="", domain="", context=0,
            provenance="sandbox", tools=(), messages=(ChatMessage(message, 1, weight, why),),
        )  # fmt: skip
