"""The proofs: whatever happens in a rollout, exactly the kept answers are trained, each once, in
the context that it was sampled in.

Held against what the engine was sent and said, as the engine remembers it: no row, no ledger and no
renderer has a part in what is expected here.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.training.rows.training_row import RowOptions, TokenRow
from tests.support.family_tokenizers import FAMILY_DIALECTS
from tests.support.tiers import sampled
from tests.training.rows.played_rollouts import Family, Played, Stage, Turn, styled_family
from tests.training.rows.row_truncation import truncated

MARKS = re.compile(r"[TAORGS]\d+(?:\.\d+)?[a-z]")
ENDINGS = ["stop"] * 5 + ["letters", "cut", "full", "malformed", "lost", "interrupt", "dies"]
VERDICTS: list[tuple[tuple[str, str], ...]] = [
    (),
    (),
    (),
    (("human", "mask"),),
    (("human", "keep"),),
    (("judge", "mask"),),
    (("rule", "mask"),),
    (("rule", "mask"), ("judge", "keep")),
    (("judge", "mask"), ("human", "keep")),
]
SHORT = 1_000
"""Tokens of a context that is forked every few steps."""


def turn(number: int, ending: str = "stop", calls: int = 1, guidance: int = 0) -> Turn:
    """A turn in which every text has a mark with its number."""
    return Turn(
        f"T{number}t thinks of it",
        tuple(f"A{number}.{n}a goes on" for n in range(calls)),
        ending,  # type: ignore[arg-type]
        tuple(f"G{number}.{n}g mind this" for n in range(guidance)),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Turn], list[tuple[tuple[str, str], ...]]]:
    """Turns of a rollout, and what is said of its steps."""
    count = draw(st.integers(2, 9))
    turns = [
        turn(
            number,
            draw(st.sampled_from(ENDINGS)),
            draw(st.integers(1, 3)),
            draw(st.sampled_from([0, 0, 0, 1, 2])),
        )
        for number in range(1, count + 1)
    ]
    return turns, [draw(st.sampled_from(VERDICTS)) for _ in turns]


def kept(step: Turn, verdicts: Sequence[tuple[str, str]]) -> bool:
    """Whether a step is trained, as docs/rows.md says it."""
    by = dict(verdicts)
    word = by.get("human") or by.get("judge") or by.get("rule")
    if step.ending == "interrupt" or word == "mask":
        return False
    if step.ending in ("cut", "full"):
        return by.get("human") == "keep"
    return word == "keep" or step.ending != "malformed"


def prove(played: Played, rows: list[TokenRow], trained: set[int]) -> None:
    """That the rows train the answers of these steps, and the summaries that were used.

    trained: numbers of steps; those that the engine lost the ids of must not be among them.
    """
    engine = played.engine
    tokens = PromptTokenizer(engine.family.tokenizer)
    trainings: Counter[tuple[int, int]] = Counter()
    answered: set[tuple[str, int]] = set()
    for row in rows:
        weights = row.weights()
        outside = [1] * len(weights)
        for span in row.spans:
            outside[span.start : span.end] = [0] * (span.end - span.start)
            if not span.weight:
                assert span.why
                continue
            answer = engine.answers[(span.role, span.step)]
            assert list(row.token_ids[: span.start]) == answer.prompt, (
                "sampled in this very context"
            )
            assert list(row.token_ids[span.start : span.end]) == answer.ids, "as it was sampled"
            assert tokens.decode(row.token_ids[span.start : span.end]) == answer.text
            answered.add((span.role, span.step))
            trainings.update((span.sample_seq, offset) for offset in range(span.end - span.start))
        assert not any(w for w, out in zip(weights, outside, strict=True) if out)
        for text in pieces(tokens, row, trained=True):
            marks = MARKS.findall(text)
            assert not [mark for mark in marks if mark[0] in "OG"], "no observation, no guidance"
            assert "<real_user>" not in text
            assert row.kind == "summary" or not [mark for mark in marks if mark[0] == "S"]
    assert max(trainings.values(), default=0) <= 1, "no sampled token is trained twice"
    assert {step for role, step in answered if role == "policy"} == trained
    words = [
        m for row in rows for text in pieces(tokens, row, trained=True) for m in marks_of(text)
    ]
    assert all(count == 1 for count in Counter(words).values())
    assert {int(word[1:-1]) for word in words if word[0] == "T"} == trained


def marks_of(text: str) -> set[str]:
    return {mark for mark in MARKS.findall(text) if mark[0] in "TA"}


def pieces(tokens: PromptTokenizer, row: TokenRow, trained: bool) -> list[str]:
    """The texts of all stretches with, or without, a weight: read from weights alone."""
    stretches: list[list[int]] = []
    last = not trained
    for token, weight in zip(row.token_ids, row.weights(), strict=True):
        now = weight > 0
        if now == trained:
            if last != trained:
                stretches.append([])
            stretches[-1].append(token)
        last = now
    return [tokens.decode(ids) for ids in stretches]


slow = settings(
    deadline=None,
    max_examples=25,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@slow
@given(
    history=histories(),
    name=st.sampled_from(["chatml", "qwen3", "glm45"]),
    context=st.sampled_from([100_000, SHORT]),
)
def test_exactly_the_kept_answers_are_trained(
    stage: Stage,
    family: dict[str, Family],
    history: tuple[list[Turn], list[tuple[tuple[str, str], ...]]],
    name: str,
    context: int,
) -> None:
    prove_history(stage, family[name], history, context)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.mark.parametrize("name", sampled(FAMILY_DIALECTS, 4))
@settings(slow, max_examples=4)
@given(history=histories(), context=st.sampled_from([100_000, SHORT]))
def test_exactly_the_kept_answers_are_trained_in_every_family(
    stage: Stage,
    folder: Path,
    history: tuple[list[Turn], list[tuple[tuple[str, str], ...]]],
    name: str,
    context: int,
) -> None:
    prove_history(stage, styled_family(name, folder), history, context)


def prove_history(
    stage: Stage,
    family: Family,
    history: tuple[list[Turn], list[tuple[tuple[str, str], ...]]],
    context: int,
) -> None:
    """That the rows of a rollout with these turns and verdicts are what docs/rows.md says."""
    turns, verdicts = history
    played = stage.play(family, turns, context=context)
    for number, of_step in enumerate(verdicts, 1):
        for source, verdict in of_step:
            stage.judge(played.id, number, verdict, source)
    given_by = [*verdicts, ()]
    all_turns = [*turns, turn(len(turns) + 1)]
    trained = {
        number
        for number, (step, of_step) in enumerate(zip(all_turns, given_by, strict=True), 1)
        if kept(step, of_step) and step.ending != "lost"
    }
    # The last one finishes, and its texts have no marks.
    rows = stage.rows(played)
    prove_all(played, rows, trained, len(all_turns))
    again = stage.rows(played)
    assert again == rows, "the same rows after every export"
    for row in rows:
        for length in (0, 1, len(row.token_ids) // 2, len(row.token_ids) - 1):
            cut = truncated(row, length)
            assert list(cut.weights()) == list(row.weights()[:length])
    everything = stage.rows(played, RowOptions(masking=False))
    unmasked = {
        number
        for number, step in enumerate(all_turns, 1)
        if step.ending not in ("interrupt", "lost")
    }
    prove_all(played, everything, unmasked, len(all_turns))


def prove_all(played: Played, rows: list[TokenRow], expected: set[int], last: int) -> None:
    """`prove`, where the last step finishes and has no mark."""
    trained = {s.step for row in rows for s in row.spans if s.weight and s.role == "policy"}
    assert trained == expected
    marked = [
        row
        if row.kind == "summary"
        else truncated(row, row.spans[-1].start)
        if row.spans and row.spans[-1].step == last
        else row
        for row in rows
    ]
    prove(played, marked, expected - {last})
    summaries = [row for row in rows if row.kind == "summary"]
    used = played.engine.rig.query(
        "SELECT step, sample_seq FROM forks WHERE rollout = ? AND mechanical = 0", played.id
    )
    assert [row.spans[-1].sample_seq for row in summaries] == [seq for _, seq in used]
    for row in summaries:
        assert [span.role for span in row.spans if span.weight] == ["summary"]
