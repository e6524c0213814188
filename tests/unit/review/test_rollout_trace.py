"""A whole rollout, read from the journal: what is in it, and what is left out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.review import rollout_trace as traces
from houston_daemon.review.rollout_trace import RolloutTrace, ScoredStep
from houston_shared.records import ForkBody, ToolCall
from houston_shared.store.event_bodies import BodiesErased, VerdictGiven
from houston_shared.store.store_reader import Reader
from tests.support.written_home import WrittenHome, sample

EVAL = ToolCall(id="1.0", name="eval", arguments={})


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenHome]:
    home = WrittenHome(tmp_path / "home")
    yield home
    home.close()


def with_ids(**fields: Any) -> Any:
    ids = {"new_prompt_ids": (1, 2, 3), "token_ids": (4, 5), "logprobs": (-0.5, -0.25)}
    return sample(**{**ids, **fields})


def trace_of(written: WrittenHome, rollout: str) -> RolloutTrace:
    with Reader(written.home) as reader:
        return traces.read_trace(reader, rollout)


def test_closed_steps_are_there_in_order_over_pages_and_without_ids(
    written: WrittenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "STEPS_PER_PAGE", 3)
    rollout = written.rollout("r")
    for number in range(1, 8):
        written.step(rollout, number, with_ids(thought=f"thought {number}"))
    written.step(rollout, 8, open=True)
    trace = trace_of(written, rollout)
    assert (
        [step.step for step in trace.steps]
        == list(range(1, 8))
        == [s.step for s in trace.observed_steps]
    )
    assert {(s.sample.token_ids, s.sample.logprobs, s.sample.new_prompt_ids) for s in trace.steps
            } == {(None, None, None)}  # fmt: skip
    assert trace.step(7) is not None
    assert trace.step(7).sample.thought == "thought 7"  # type: ignore[union-attr]
    assert (trace.step(8), trace.step(0)) == (None, None)
    assert [step.step for step in trace.before(3)] == [1, 2]
    assert (trace.task.name, trace.instructions, trace.ended) == ("count-words", "Count.", False)


def test_only_the_attempt_that_counts_is_there(written: WrittenHome) -> None:
    rollout = written.rollout("r")
    written.step(rollout, 1, sample("first"))
    written.step(rollout, 1, sample("second"), attempt=2)
    trace = trace_of(written, rollout)
    assert [(step.attempt, step.sample.thought) for step in trace.steps] == [(2, "second")]


def test_a_branch_has_the_past_that_it_shares_and_its_forks(written: WrittenHome) -> None:
    parent = written.rollout("parent")
    for number in (1, 2, 3):
        written.step(parent, number, sample(f"parent {number}"))
    written.fork(parent, 2, ForkBody(k=1, first_kept_step=2, summary="so far"))
    written.fork(parent, 3, ForkBody(k=1, first_kept_step=3, summary="and on"))
    branch = written.rollout("branch", parent="parent", parent_step=2, state="finished")
    written.step(branch, 3, sample("branch 3"))
    trace = trace_of(written, branch)
    assert [step.sample.thought for step in trace.steps] == ["parent 1", "parent 2", "branch 3"]
    assert [fork.step for fork in trace.forks] == [2]
    assert trace.ended


def test_scores_are_those_of_submissions_that_gave_one(written: WrittenHome) -> None:
    from houston_shared.records import ObservationBody, ToolResult
    from houston_shared.store.event_bodies import StoredObservation
    from tests.support.written_home import stored

    rollout = written.rollout("r")
    submissions = [("scored", 41.5), ("format", None), ("scored", 63)]
    submissions += [("failed", None), ("scored", 50.0)]
    for number, (state, score) in enumerate(submissions, 1):
        written.step(rollout, number, sample(calls=(EVAL,)), open=True)
        fields = {"overall_score": score, "state": state, "counted": state == "scored"}
        result = ToolResult(
            call=EVAL, kind="eval", success=score is not None, text="", fields=fields
        )
        written.event(EventKey(rollout, number, 1, "call.0"), "result", result)
        closed = stored(StoredObservation, ObservationBody(tail=""), active_us=1)
        written.event(EventKey(rollout, number, 1, "observation"), "observation", closed)
    trace = trace_of(written, rollout)
    assert trace.scores == (ScoredStep(1, 41.5), ScoredStep(3, 63.0), ScoredStep(5, 50.0))
    assert trace.best == 63.0


GONE = {
    "archived": ({"archive": "/a/r.zst"}, ("r was archived: its texts are in /a/r.zst.",
                                           "houston rollout archive --read /a/r.zst")),
    "a step erased": ({}, ("Step 2 of rollout r was erased from the journal.",
                           "houston verdict limb")),
    "an archive that was cut short": ({"archive": "/a/r.zst", "more": True}, ("Step 2 of", "")),
}  # fmt: skip


@pytest.mark.parametrize("name", GONE)
def test_a_rollout_whose_texts_are_gone_is_refused_also_as_the_past_of_a_branch(
    written: WrittenHome, name: str
) -> None:
    how, words = GONE[name]
    written.rollout("r")
    seqs = [written.step("r", number) for number in (1, 2, 3)]
    written.rollout("limb", parent="r", parent_step=2)
    written.rollout("other", parent="r", parent_step=1)
    body = BodiesErased(by="person:ada", seqs=(seqs[1],), remainders=(b"",), **how)  # type: ignore[arg-type]
    trace_of(written, "limb")
    written.event(EventKey("r"), "erased", body)
    with Reader(written.home) as reader:
        with pytest.raises(traces.TextsUnavailable) as refusal:
            traces.read_trace(reader, "limb")
        assert words[0] in refusal.value.cause and words[1] in refusal.value.next
        assert refusal.value.effect == "Nothing was judged."
    if name != "archived":
        trace_of(written, "other")


def test_a_rollout_that_is_archived_while_it_is_read_is_refused(
    written: WrittenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.rollout("r")
    seq = written.step("r", 1)
    page = traces._trace_page

    def late(rollout: str, first: int) -> Any:
        body = BodiesErased(by="person:ada", seqs=(seq,), remainders=(b"",), archive="/a/r.zst")
        written.event(EventKey("r"), "erased", body)
        return page(rollout, first)

    monkeypatch.setattr(traces, "_trace_page", late)
    with Reader(written.home) as reader, pytest.raises(traces.TextsUnavailable):
        traces.read_trace(reader, "r")


def test_notes_and_verdicts_that_were_erased_leave_a_rollout_as_it_was(
    written: WrittenHome,
) -> None:
    written.rollout("r")
    written.step("r", 1)
    verdict = written.event(
        EventKey("r", 1), "verdict", VerdictGiven(last=1, verdict="keep", by="ada")
    )
    body = BodiesErased(by="person:ada", seqs=(verdict,), remainders=(b"",))
    written.event(EventKey("r"), "erased", body)
    assert len(trace_of(written, "r").steps) == 1


def test_only_what_closed_or_was_replaced_since_is_read_again(tmp_path: Path) -> None:
    written = WrittenHome(tmp_path / "again")
    written.rollout("r")
    for number in (1, 2, 3):
        written.step("r", number)
    with Reader(written.home) as reader:
        before = traces.read_trace(reader, "r")
        written.step("r", 3, sample("another"), attempt=2)
        written.connection.execute("UPDATE steps SET current = 0 WHERE step = 3 AND attempt = 1")
        written.step("r", 4)
        now = traces.read_trace(reader, "r", before.steps)
        assert now.steps == traces.read_trace(reader, "r").steps
    written.close()
    assert [step.attempt for step in now.steps] == [1, 1, 2, 1]
    pairs = zip(now.steps, before.steps, strict=False)
    assert [step is other for step, other in pairs] == [True, True, False]
