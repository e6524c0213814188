"""The same proof without thoughts: actions are trained, in the contexts that were sent."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.training.rows.training_row import TokenRow
from tests.training.rows.played_rollouts import Family, Played, Stage, Turn
from tests.training.rows.test_trained_answers import (
    MARKS,
    SHORT,
    histories,
    kept,
    pieces,
    slow,
    turn,
)


@settings(slow, max_examples=12)
@given(
    history=histories(),
    name=st.sampled_from(["chatml", "qwen3", "glm45"]),
    context=st.sampled_from([100_000, SHORT]),
    at=st.integers(1, 9),
)
def test_exactly_the_kept_actions_are_trained(
    stage: Stage,
    family: dict[str, Family],
    history: tuple[list[Turn], list[tuple[tuple[str, str], ...]]],
    name: str,
    context: int,
    at: int,
) -> None:
    turns, verdicts = history
    played = stage.play(family[name], turns, context=context, strip=True)
    for number, of_step in enumerate(verdicts, 1):
        for source, verdict in of_step:
            stage.judge(played.id, number, verdict, source)
    everything = [*zip(turns, verdicts, strict=True), (turn(len(turns) + 1), ())]
    expected = {n for n, (step, of_step) in enumerate(everything, 1) if kept(step, of_step)}
    prove(played, stage.rows(played), expected)
    at = min(at, len(turns))
    branch = stage.branch(played, at, [turn(at + 1)])
    others = {n for n in expected if n <= at}
    mine = {at + 1, at + 2} & set(range(1, len(turns) + 2))
    prove(branch, stage.rows(branch), others | mine, shared=at)
    beside = [played.id, branch.id]
    prove(branch, stage.rows(branch, beside=beside), mine, shared=at)


def prove(played: Played, rows: list[TokenRow], trained: set[int], shared: int = 0) -> None:
    """shared: steps up to this one were sent by the parent's engine."""
    tokens = PromptTokenizer(played.engine.family.tokenizer)
    seqs: list[int] = []
    for row in rows:
        for text in pieces(tokens, row, trained=True):
            marks = {mark[0] for mark in MARKS.findall(text)}
            assert not marks & set("OG")
            assert row.kind == "summary" or not re.findall(r"T\d+t.*A\d+", text, re.S)
        for span in row.spans:
            if not span.weight:
                continue
            seqs.append(span.sample_seq)
            if span.step > shared:
                answer = played.engine.answers[(span.role, span.step)]
                assert list(row.token_ids[: span.start]) == answer.prompt
    assert len(seqs) == len(set(seqs))
    steps = {s.step for row in rows for s in row.spans if s.weight and s.role == "policy"}
    assert steps == trained
