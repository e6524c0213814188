"""Forks and summaries: who trains a step that a fork keeps, and what of a summary is trained."""

from collections import Counter

import pytest

from houston_daemon.training.rows.training_row import RowOptions, TokenRow
from tests.training.rows.played_rollouts import Family, Stage
from tests.training.rows.test_trained_answers import turn

TURNS = [turn(number) for number in range(1, 13)]


def trained(rows: list[TokenRow]) -> Counter[int]:
    return Counter(
        span.step for row in rows for span in row.spans if span.weight and row.kind == "react"
    )


@pytest.mark.parametrize("name", ["chatml", "qwen3", "glm45"])
def test_a_step_over_a_fork_is_trained_before_it(
    stage: Stage, family: dict[str, Family], name: str
) -> None:
    played = stage.play(family[name], TURNS, context=1_300)
    rows = [row for row in stage.rows(played) if row.kind == "react"]
    forks = stage.rig.query(
        "SELECT step, first_kept_step FROM forks WHERE rollout = ? ORDER BY number", played.id
    )
    assert len(rows) == len(forks) + 1 >= 3
    for row, (first_step, kept_from) in zip(rows[1:], forks, strict=True):
        copies = {span.step: span for span in row.spans if span.step < first_step}
        assert sorted(copies) == list(range(kept_from, first_step)), "each is found and marked"
        assert len(copies) >= 2
        for span in copies.values():
            assert span.weight == 0
            home = sum(first_step <= span.step for first_step, _ in forks)
            assert span.why == f"trained in row {played.id}/{home}.0"
            ids = list(row.token_ids[span.start : span.end])
            assert ids == played.engine.answers[("policy", span.step)].ids
            index = row.spans.index(span)
            assert index not in row.logprobs, "they were of another context"
        for index, span in enumerate(row.spans):
            if span.step >= first_step:
                assert len(row.logprobs[index]) == span.end - span.start
                assert span.logprob_kind == "before_temperature", "it was drawn at 0.7"
    assert [row.context for row in rows] == list(range(len(rows)))
    assert trained(rows) == Counter(range(1, 14))


def test_as_in_the_paper_a_kept_step_is_trained_wherever_it_stands(
    stage: Stage, family: dict[str, Family]
) -> None:
    played = stage.play(family["glm45"], TURNS, context=1_300)
    stage.judge(played.id, 5, "mask")
    rows = stage.rows(played, RowOptions(overlap="paper"))
    copies = Counter(span.step for row in rows for span in row.spans if row.kind == "react")
    assert max(copies.values()) >= 2
    assert trained(rows) == Counter({step: n for step, n in copies.items() if step != 5})
    for row in rows:
        if row.kind == "summary":
            assert [span.role for span in row.spans if span.weight] == ["summary"]


def test_a_summary_row_trains_the_try_that_was_used(
    stage: Stage, family: dict[str, Family]
) -> None:
    played = stage.play(family["chatml"], TURNS, context=1_300, failing=1)
    rows = [row for row in stage.rows(played) if row.kind == "summary"]
    tries = stage.rig.query(
        "SELECT count(*) FROM samples WHERE rollout = ? AND role = 'summary'", played.id
    )
    assert tries[0][0] > len(rows) >= 2, "some tries failed"
    for number, row in enumerate(rows, 1):
        assert row.id == f"{played.id}/summary.{number}"
        *before, last = row.spans
        assert (last.end, last.weight) == (len(row.token_ids), 1.0)
        summary = played.engine.answers[("summary", last.step)]
        assert list(row.token_ids[: last.start]) == summary.prompt
        assert list(row.token_ids[last.start :]) == summary.ids
        assert before, "the answers that it sums up are marked"
        assert all(span.why.startswith("trained in row") for span in before)
    assert not [
        row for row in stage.rows(played, RowOptions(roles=("policy",))) if row.kind != "react"
    ]


def test_a_mechanical_summary_trains_nothing(stage: Stage, family: dict[str, Family]) -> None:
    played = stage.play(family["qwen3"], TURNS, context=1_300, summaries=False)
    rows = stage.rows(played)
    assert {row.kind for row in rows} == {"react"}
    assert trained(rows) == Counter(range(1, 14))
    assert len(rows) >= 3
