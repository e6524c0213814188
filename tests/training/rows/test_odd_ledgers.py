"""Ledgers that the loop writes seldom, by hand: prompts that do not go on where the last ended."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.training.rows.recorded_rows import unique_position
from houston_daemon.training.rows.row_builder import build_chat_rows, build_token_rows
from houston_daemon.training.rows.training_row import RowOptions, TokenRow, check_role
from houston_shared.errors import HoustonError
from houston_shared.records import ContextHead, ForkBody, ToolCall
from houston_shared.sample_roles import SAMPLE_ROLES
from houston_shared.store.store_reader import Reader
from tests.support.small_tokenizer import small_tokenizer
from tests.support.written_home import WrittenHome, sample

HEAD = (1, 2, 3)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[WrittenHome]:
    written = WrittenHome(tmp_path / "home")
    written.rollout("r")
    written.head("r", head())
    yield written
    written.close()


def head() -> ContextHead:
    return ContextHead(
        system="s", task="t", tools=(), rendered="", token_ids=HEAD, dialect="chatml-json",
        tokenizer="/nowhere/tokenizer.json",
    )  # fmt: skip


def write_step(
    home: WrittenHome,
    step: int,
    parent: int | None,
    kept: int,
    new: list[int],
    ids: list[int] | None,
    drift: str = "clean",
    **more: object,
) -> int:
    """A closed step; its sample's sequence."""
    logprobs = None if ids is None else tuple(-float(number) for number in ids)
    more.setdefault("calls", (ToolCall(id=f"{step}.0", name="noop", arguments={}),))
    body = sample(
        parent_seq=parent, kept=kept, new_prompt_ids=tuple(new),
        token_ids=None if ids is None else tuple(ids), logprobs=logprobs, logprob_kind="policy",
        drift=drift, **more,
    )  # fmt: skip
    return home.step("r", step, body)


def rows(home: WrittenHome, options: RowOptions | None = None) -> list[TokenRow]:
    with Reader(home.home) as reader:
        return list(build_token_rows(reader, "r", options or RowOptions()))


def row_facts(row: TokenRow) -> tuple[str, list[int], list[tuple[int, int, float, str]]]:
    spans = [(s.start, s.end, s.weight, s.why) for s in row.spans]
    return row.id, list(row.token_ids), spans


def test_a_realigned_prompt_begins_another_row(home: WrittenHome) -> None:
    """Of step 2's four ids the next prompt keeps two: they stand there, and were trained before."""
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10, 11], "forked")
    seq2 = write_step(home, 2, seq1, 5, [4], [20, 21, 22, 23])
    write_step(home, 3, seq2, 8, [5, 6], [30], "realigned")
    first, second = rows(home)
    assert row_facts(first) == (
        "r/0.0",
        [1, 2, 3, 10, 11, 4, 20, 21, 22, 23],
        [(3, 5, 1.0, ""), (6, 10, 1.0, "")],
    )
    assert row_facts(second) == (
        "r/0.1",
        [1, 2, 3, 10, 11, 4, 20, 21, 5, 6, 30],
        [(3, 5, 0.0, "trained in row r/0.0"), (6, 8, 0.0, "trained in row r/0.0"),
         (10, 11, 1.0, "")],
    )  # fmt: skip
    assert {k: list(v) for k, v in second.logprobs.items()} == {
        0: [-10.0, -11.0],
        1: [-20.0, -21.0],
        2: [-30.0],
    }
    paper = rows(home, RowOptions(overlap="paper"))
    assert [row_facts(row) for row in paper] == [row_facts(first), row_facts(second)], (
        "it is no fork"
    )


def test_a_prompt_that_goes_on_from_an_older_one_begins_another_row(home: WrittenHome) -> None:
    """Step 3 follows step 1, as after a step that was taken back."""
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10, 11], "forked")
    write_step(home, 2, seq1, 5, [4], [20])
    write_step(home, 3, seq1, 5, [5], [30], "realigned")
    first, second = rows(home)
    assert row_facts(first)[1:] == ([1, 2, 3, 10, 11, 4, 20], [(3, 5, 1.0, ""), (6, 7, 1.0, "")])
    assert row_facts(second) == (
        "r/0.1",
        [1, 2, 3, 10, 11, 5, 30],
        [(3, 5, 0.0, "trained in row r/0.0"), (6, 7, 1.0, "")],
    )


def test_an_answer_without_ids_breaks_no_row(home: WrittenHome) -> None:
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], None, "forked")
    write_step(home, 2, seq1, 3, [7, 7, 7], [20], "realigned")
    (row,) = rows(home)
    assert row_facts(row) == ("r/0.0", [1, 2, 3, 7, 7, 7, 20], [(6, 7, 1.0, "")])


def test_log_probabilities_and_grammars_stay_with_their_span(home: WrittenHome) -> None:
    drawn = {"temperature": 1.0, "top_p": 1.0}
    seq1 = write_step(
        home, 1, None, 0, [1], [10, 11], "forked", parameters={**drawn, "grammar": "abc"}
    )
    write_step(home, 2, seq1, 3, [2], [20], parameters=drawn)
    (row,) = rows(home)
    assert [(span.guided, span.logprob_kind) for span in row.spans] == [
        (True, "before_temperature"),
        (False, "policy"),
    ]
    assert [dict(span.sampling) for span in row.spans] == [{**drawn, "grammar": "abc"}, drawn]
    assert {k: list(v) for k, v in row.logprobs.items()} == {0: [-10.0, -11.0], 1: [-20.0]}


@pytest.mark.parametrize("kind", ["policy", "none"])
def test_an_older_homes_log_probabilities_are_called_what_they_are(
    home: WrittenHome, kind: str
) -> None:
    """They said `policy` at any temperature; how it was drawn stands beside them."""
    drawn = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 64, "stop_token_ids": [11]}
    body = sample(
        parent_seq=None, kept=0, new_prompt_ids=(1,), token_ids=(10, 11), logprobs=(-1.0, -2.0),
        logprob_kind=kind, drift="forked", parameters=drawn, policy_hash="cafe",
    )  # fmt: skip
    home.step("r", 1, body)
    ((span,),) = [row.spans for row in rows(home)]
    assert span.logprob_kind == ("before_temperature" if kind == "policy" else "none")
    assert dict(span.sampling) == {"temperature": 0.7, "top_p": 0.9}
    assert span.policy_hash == "cafe"


ROLES = [role for role in SAMPLE_ROLES if role not in ("policy", "lookahead")]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("way", ["ledger", "rendered", "messages"])
def test_a_step_in_another_role_is_no_policys(
    home: WrittenHome, tmp_path: Path, role: str, way: str
) -> None:
    write_step(home, 1, None, 0, [1, 2, 3], [10, 11], "forked", role=role)
    with pytest.raises(HoustonError, match=f"'{role}', but rows are made of the role 'policy'"):
        if way == "messages":
            with Reader(home.home) as reader:
                list(build_chat_rows(reader, "r"))
        else:
            options = RowOptions(tokenizer=small_tokenizer(tmp_path), dialect="hermes")
            rows(home, RowOptions() if way == "ledger" else options)


def test_a_look_ahead_alone_makes_no_row(home: WrittenHome) -> None:
    """It is an attempt that never counts: nothing of it is trained, and nothing is refused."""
    write_step(home, 1, None, 0, [1, 2, 3], [10, 11], "forked", role="lookahead")
    assert rows(home) == []


def test_a_summary_in_another_role_is_none(home: WrittenHome) -> None:
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10], "forked")
    seq2 = write_step(home, 2, seq1, 4, [4], [20])
    summary = sample(
        role="judge", parent_seq=seq2, kept=5, new_prompt_ids=(7,), token_ids=(40,), drift="clean"
    )
    seq = home.sampled("r", 3, summary, part="judge")
    home.fork("r", 3, ForkBody(k=1, first_kept_step=2, summary="s", sample_seq=seq, before=3))
    with pytest.raises(HoustonError, match="'judge', but rows are made of the role 'summary'"):
        rows(home)


def test_a_role_that_nobody_knows_is_refused() -> None:
    check_role("policy", "policy", 1)
    with pytest.raises(HoustonError, match=r"an unknown role \('pilot'\)"):
        check_role("pilot", "policy", 1)


@pytest.mark.parametrize(("last", "weight"), [(7, 1.0), (8, 1.0), (11, 0.0)])
def test_an_answer_that_ends_without_its_stop_token_is_not_trained(
    home: WrittenHome, last: int, weight: float
) -> None:
    write_step(home, 1, None, 0, [1], [10, last], "forked", parameters={"stop_token_ids": [7, 8]})
    (row,) = rows(home)
    assert [span.weight for span in row.spans] == [weight]


def fork(home: WrittenHome, step: int, kept_from: int) -> None:
    body = ForkBody(k=1, first_kept_step=kept_from, summary="s", mechanical=True, before=step)
    home.fork("r", step, body)


def test_a_kept_step_that_cannot_be_told_apart_is_not_marked(home: WrittenHome) -> None:
    """The kept answer is one id that stands in the summary too: a guess would be no proof."""
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10], "forked")
    write_step(home, 2, seq1, 4, [4], [20])
    fork(home, 3, 2)
    write_step(home, 3, None, 0, [1, 2, 3, 20, 9, 20, 5], [30], "forked")
    first, second = rows(home)
    assert [s[:3] for s in row_facts(first)[2]] == [(3, 4, 1.0), (5, 6, 1.0)]
    assert row_facts(second)[2] == [(7, 8, 1.0, "")]


def test_a_kept_step_is_found_behind_a_summary(home: WrittenHome) -> None:
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10], "forked")
    seq2 = write_step(home, 2, seq1, 4, [4], [20, 21])
    write_step(home, 3, seq2, 7, [5], [30])
    fork(home, 4, 2)
    write_step(home, 4, None, 0, [1, 2, 3, 99, 20, 21, 5, 30, 6], [40], "forked")
    _, second = rows(home)
    assert row_facts(second)[2] == [
        (4, 6, 0.0, "trained in row r/0.0"),
        (7, 8, 0.0, "trained in row r/0.0"),
        (9, 10, 1.0, ""),
    ]
    assert list(second.logprobs) == [2]


def test_as_in_the_paper_means_once_a_context(home: WrittenHome) -> None:
    """A kept step is trained again over the fork, and not again where the context realigns."""
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10], "forked")
    seq2 = write_step(home, 2, seq1, 4, [4], [20, 21])
    fork(home, 3, 2)
    seq3 = write_step(home, 3, None, 0, [1, 2, 3, 99, 20, 21, 5], [30, 31], "forked")
    assert seq2 < seq3
    write_step(home, 4, seq3, 8, [6], [40], "realigned")
    weights = [
        {span.step: span.weight for span in row.spans}
        for row in rows(home, RowOptions(overlap="paper"))
    ]
    assert weights == [{1: 1, 2: 1}, {2: 1, 3: 1}, {2: 0, 3: 0, 4: 1}]


@pytest.mark.parametrize(
    ("name", "kept", "more"),
    [
        ("it keeps more than there was", 99, {}),
        ("another prompt was sent", 5, {"prompt_tokens": 77}),
    ],
)
def test_a_broken_ledger_is_refused(
    home: WrittenHome, name: str, kept: int, more: dict[str, object]
) -> None:
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10, 11], "forked")
    write_step(home, 2, seq1, kept, [4], [20], **more)
    with pytest.raises(HoustonError, match="ledger is broken"):
        rows(home)


def test_a_parent_that_is_gone_is_refused(home: WrittenHome) -> None:
    write_step(home, 1, None, 0, [1, 2, 3], [10, 11], "forked")
    write_step(home, 2, 9_999, 5, [4], [20])
    with pytest.raises(HoustonError, match="ledger is broken"):
        rows(home)


def test_a_step_that_a_repair_set_aside_is_refused(home: WrittenHome) -> None:
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10], "forked")
    write_step(home, 3, seq1, 4, [4], [20])
    with pytest.raises(HoustonError, match="Step 2 of rollout r is missing"):
        rows(home)


def test_only_the_attempt_that_counts_is_used(home: WrittenHome) -> None:
    seq1 = write_step(home, 1, None, 0, [1, 2, 3], [10], "forked")
    write_step(home, 2, seq1, 4, [4], [20])
    body = sample(
        parent_seq=seq1, kept=4, new_prompt_ids=(4,), token_ids=(25,), logprobs=(-0.5,),
        logprob_kind="policy", calls=(ToolCall(id="2.0", name="noop", arguments={}),),
    )  # fmt: skip
    home.step("r", 2, body, attempt=2)
    home.connection.execute("UPDATE steps SET current = 0 WHERE step = 2 AND attempt = 1")
    home.insert(
        "verdicts", rollout="r", step=2, attempt=1, source="rule", keep=0, author="rules", seq=1,
        at=1,
    )  # fmt: skip
    (row,) = rows(home)
    assert row_facts(row) == ("r/0.0", [1, 2, 3, 10, 4, 25], [(3, 4, 1.0, ""), (5, 6, 1.0, "")])
    assert [span.attempt for span in row.spans] == [1, 2]


@pytest.mark.parametrize(
    ("part", "whole", "first", "at"),
    [
        ([7, 8], [1, 7, 8, 2], 0, 1),
        ([7, 8], [7, 8, 7, 8], 0, None),
        ([7, 8], [7, 8, 7, 8], 1, 2),
        ([7, 7], [7, 7, 7], 0, None),
        ([9], [1, 2], 0, None),
        ([], [1, 2], 0, None),
        ([256], [1, 65536], 0, None),  # the same bytes, but across two ids
    ],
)
def test_where_a_part_stands(part: list[int], whole: list[int], first: int, at: int | None) -> None:
    assert unique_position(array("i", part), array("i", whole), first) == at
