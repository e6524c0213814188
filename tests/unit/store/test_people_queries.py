"""What people read of rollouts from afar: scores of branches, last actions, who is needed where."""

from typing import Any

import msgspec
import pytest

from houston_console.transcript.trajectory_reader import read_step_rows
from houston_daemon.maintenance import erased_body
from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.records import CallIntent, ObservationBody, ToolCall, ToolResult
from houston_shared.store import (
    annotation_queries,
    attention_ranking,
    last_actions,
    presence_queries,
    rollout_queries,
)
from houston_shared.store.attention_ranking import rank_rollouts
from houston_shared.store.event_bodies import StoredObservation, VerdictGiven
from houston_shared.store.journal_events import ERASED_TEXT
from houston_shared.store.presence_queries import Person
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import now_us
from houston_shared.wire import encode_message
from tests.support.written_home import WrittenHome, sample, stored

EVAL = ToolCall(id="1.0", name="eval", arguments={})
RUN = ToolCall(id="1.0", name="run_command", arguments={"command": "python train.py\n--fast"})
ADA = Person("ada", 1000)


def scored(written: WrittenHome, rollout: str, step: int, score: float) -> None:
    written.sampled(rollout, step, sample(calls=(EVAL,)))
    written.event(EventKey(rollout, step, 1, "intent.0"), "intent", CallIntent(call=EVAL))
    fields = {"overall_score": score, "state": "scored"}
    result = ToolResult(call=EVAL, kind="eval", success=True, text="", fields=fields)
    written.event(EventKey(rollout, step, 1, "call.0"), "result", result)
    closed = stored(StoredObservation, ObservationBody(tail=""), active_us=1_000_000 * step)
    written.event(EventKey(rollout, step, 1, "observation"), "observation", closed)


def read(written: WrittenHome, plan: Any) -> Any:
    with Reader(written.home) as reader:
        return reader.run(plan)


def test_a_branch_has_the_scores_of_the_past_that_it_shares(written: WrittenHome) -> None:
    for rollout in ("root", "other"):
        written.rollout(rollout)
    for step in range(1, 5):
        scored(written, "root", step, 10.0 * step)
    written.rollout("limb", parent="root", parent_step=2)
    scored(written, "limb", 3, 77.0)
    written.rollout("twig", parent="limb", parent_step=3)
    scores = read(written, rollout_queries.score_history(["root", "limb", "twig", "other"]))
    assert {name: [point.score for point in all_] for name, all_ in scores.items()} == {
        "root": [10, 20, 30, 40], "limb": [10, 20, 77], "twig": [10, 20, 77], "other": [],
    }  # fmt: skip
    assert [point.active_us for point in scores["limb"]] == [1_000_000, 2_000_000, 3_000_000]
    assert [
        point.score for point in read(written, rollout_queries.score_history(["root"], 2))["root"]
    ] == [30, 40]


def test_words_on_a_branch_have_the_score_of_the_shared_past_before_them(
    written: WrittenHome,
) -> None:
    """What the rollout that it branched from scored later is nothing of the branch."""
    written.rollout("root")
    for step in (1, 2, 5):
        scored(written, "root", step, 10.0 * step)
    written.rollout("limb", parent="root", parent_step=3)
    heard_at = (1, 2, 4)
    around = [read(written, rollout_queries.scores_around("limb", step)) for step in heard_at]
    assert around == [(10, 20), (20, None), (20, None)]
    scored(written, "limb", 6, 77.0)
    around = [read(written, rollout_queries.scores_around("limb", step)) for step in (0, 4, 6)]
    assert around == [(None, 77), (20, 77), (77, None)]


def test_what_was_said_of_a_replaced_attempt_no_longer_stands(written: WrittenHome) -> None:
    written.rollout("root")
    for step in (1, 2):
        written.step("root", step)
        masked = VerdictGiven(last=step, verdict="mask", by="rules", source="rule", asked="ada")
        written.event(EventKey("root", step), "verdict", masked)
    written.step("root", 1, attempt=2)
    assert list(read(written, annotation_queries.read_verdicts_with_reasons("root"))) == [2]
    written.event(EventKey("root", 1), "verdict", VerdictGiven(last=1, verdict="keep", by="ada"))
    verdicts = read(written, annotation_queries.read_verdicts_with_reasons("root"))[1]
    assert [(verdict.attempt, verdict.verdict) for verdict in verdicts] == [(2, "keep")]
    assert len(read(written, annotation_queries.read_verdict_history("root", 1, 1))) == 2


KEPT = {"verdict": "keep", "source": "judge", "by": "judge:e", "reason": "it is sound"}
JUDGE_MASKS = {**KEPT, "verdict": "mask", "reason": "wrong_tool: why not ls"}
RULES = {"verdict": "mask", "source": "rule", "by": "rules"}
ERROR = {**RULES, "reason": "error_observation@1: make: exit code 2"}
BLIND = {**RULES, "reason": "blind_edit@1: a.py was changed"}
BOTH = {**RULES, "reason": f"{BLIND['reason']}; {ERROR['reason']}"}
QUOTED = {
    **RULES,
    "reason": "blind_edit@1: it printed; error_observation @1: x, error_observation@1",
}
BACK = {**RULES, "verdict": "undecided"}
MINE = {"verdict": "keep", "by": "ada"}
COUNTS = {
    "an error that comes after a judge's keep": ([KEPT, ERROR], "mask rule"),
    "an error before it": ([ERROR, KEPT], "mask rule"),
    "an error beside what another rule says": ([KEPT, BOTH], "mask rule"),
    "another rule": ([KEPT, BLIND], "keep judge"),
    "another rule that quotes the error's": ([KEPT, QUOTED], "keep judge"),
    "an error that a rule takes back": ([KEPT, ERROR, BACK], "keep judge"),
    "an error that is none any more, but blind": ([KEPT, ERROR, BLIND], "keep judge"),
    "an error on which the judge agrees": ([JUDGE_MASKS, ERROR], "mask judge"),
    "a person, before both": ([KEPT, ERROR, MINE], "keep human"),
    "rules alone": ([ERROR], "mask rule"),
}


@pytest.mark.parametrize("erased", [False, True], ids=["as it was", "its reasons erased"])
@pytest.mark.parametrize("case", COUNTS)
def test_which_verdict_counts_is_the_same_for_everybody_who_asks(
    case: str, erased: bool, written: WrittenHome
) -> None:
    verdicts, counts = COUNTS[case]
    written.rollout("r")
    written.step("r", 1)
    for verdict in verdicts:
        body = VerdictGiven(last=1, **verdict)  # type: ignore[arg-type]
        if erased:
            blanked = erased_body.blank_body("verdict", encode_message(body))
            body = msgspec.msgpack.decode(blanked or b"", type=VerdictGiven)
            assert erased_body.blank_body("verdict", encode_message(body)) == blanked
            assert "exit code" not in body.reason and "changed" not in body.reason
        written.event(EventKey("r", 1), "verdict", body)
    written.rollout("limb", parent="r", parent_step=1)
    for rollout in ("r", "limb"):
        first = read(written, annotation_queries.read_verdicts_with_reasons(rollout))[1][0]
        listed = read(written, annotation_queries.list_verdicts(rollout))
        column = annotation_queries.effective_verdicts(listed)[1, 1]
        (row,) = read(written, read_step_rows(rollout, 1, 1))
        assert f"{first.verdict} {first.source}" == counts
        assert f"{'keep' if column.keep else 'mask'} {column.source}" == counts
        assert row.verdict == f"{column.source}{column.keep}"


def test_an_error_speaks_for_its_own_attempt_only(written: WrittenHome) -> None:
    written.rollout("r")
    written.step("r", 1)
    written.event(EventKey("r", 1), "verdict", VerdictGiven(last=1, **ERROR))  # type: ignore[arg-type]
    written.step("r", 1, attempt=2)
    written.event(EventKey("r", 1), "verdict", VerdictGiven(last=1, **KEPT))  # type: ignore[arg-type]
    assert read(written, annotation_queries.read_verdicts_with_reasons("r"))[1][0].verdict == "keep"
    column = annotation_queries.effective_verdicts(
        read(written, annotation_queries.list_verdicts("r"))
    )
    assert [(number, row.keep) for (_, number), row in sorted(column.items())] == [(1, 0), (2, 1)]


def test_what_the_past_of_a_branch_cost_counts_where_it_is_asked_for(
    written: WrittenHome,
) -> None:
    written.rollout("root")
    for step, words in ((1, "one two"), (2, "three"), (3, "four five six")):
        written.guide("root", f"g{step}", words)
        written.step("root", step)
        written.deliver("root", step, f"g{step}")
    written.look("root", "ada", verified=1, active_us=60)
    written.rollout("limb", parent="root", parent_step=2)
    written.guide("limb", "g9", "seven")
    written.look("limb", "ben", active_us=5)
    own = read(written, presence_queries.read_attention_costs(["limb"]))["limb"]
    assert [(row.name, row.words, row.active_us) for row in own] == [("ben", 0, 5), ("ada", 1, 0)]
    line = read(written, presence_queries.read_attention_cost_with_past("limb"))
    assert [(row.name, row.words, row.active_us) for row in line] == [("ada", 4, 60), ("ben", 0, 5)]


ACTED = {
    "a call on one line": (sample(calls=(RUN,)), "run_command command=python train.py --fast"),
    "several calls": (sample(calls=(EVAL, EVAL)), "eval; eval"),
    "only a thought": (sample("I wonder\nwhy"), "I wonder why"),
    "a long one": (sample("x" * 500), f"{'x' * 159}…"),
}


@pytest.mark.parametrize("case", ACTED)
def test_the_last_action_is_said_in_a_line(case: str, written: WrittenHome) -> None:
    body, words = ACTED[case]
    written.rollout("r")
    written.step("r", 1, body, open=True)
    action = read(written, last_actions.read_last_actions(["r"]))["r"]
    assert (action.step, action.open, action.text) == (1, True, words)


def test_an_action_that_was_erased_is_said_to_be(written: WrittenHome) -> None:
    written.rollout("r")
    written.erase(written.step("r", 1))
    assert read(written, last_actions.read_last_actions(["r"]))["r"].text == ERASED_TEXT


def test_the_home_has_everything_of_a_line_in_one_read(written: WrittenHome) -> None:
    now = now_us()
    for rollout in ("quiet", "spoken", "seen"):
        written.rollout(rollout)
        written.guide(rollout, f"g-{rollout}", "Look at 数据.")
        written.step(rollout, 1)
        if rollout != "quiet":
            written.deliver(rollout, 1, f"g-{rollout}")
        written.step(rollout, 2)
    newest = written.seq
    written.look("seen", "ada", uid=1000, seq=newest, seen_at=now, last=now - 10**9, here=0)
    written.step("seen", 3)
    written.look("spoken", "ben", last=now)
    by_id = {
        overview.rollout.id: overview
        for overview in read(written, attention_ranking.read_rollout_overviews(ADA, now))
    }
    assert (by_id["quiet"].queued, by_id["quiet"].unanswered) == (1, 0)
    assert (by_id["spoken"].unanswered, by_id["spoken"].queued) == (1, 0)
    assert by_id["seen"].unanswered == 0, "somebody has seen what followed"
    assert (by_id["seen"].new_steps, by_id["quiet"].new_steps) == (1, None)
    assert [look.name for look in by_id["spoken"].viewers] == ["ben"]
    looks = read(written, presence_queries.list_presence())
    assert {look.rollout for look in looks if look.looks(now)} == {"spoken"}
    later = [
        need.overview.rollout.id for need in rank_rollouts(list(by_id.values()), now + 3600 * 10**6)
    ]
    assert later == ["quiet", "spoken", "seen"], "ben looks at one that waits to be seen"
    spent = read(written, presence_queries.read_attention_costs(["quiet", "spoken"]))
    assert [(cost.name, cost.words) for cost in spent["quiet"]] == [("ada", 4)]
    assert {cost.name for cost in spent["spoken"]} == {"ada", "ben"}
    assert read(written, presence_queries.list_claims()) == {}
