"""What one answer weighs: every rule of docs/rows.md as a named scenario."""

from dataclasses import dataclass, replace

import msgspec
import pytest

from houston_daemon.training.rl.group_credit import ROW_OPTIONS
from houston_daemon.training.rows.row_weights import (
    AnswerFacts,
    PlannedStep,
    compute_answer_weight,
    no_action_reason,
    weigh_summary,
    weight_of_copy,
)
from houston_daemon.training.rows.training_row import RowOptions
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.store.step_queries import StepRow

ROW = StepRow(
    rollout="r", step=3, attempt=1, current=1, sample_seq=9, observation_seq=10, last_seq=10,
    policy="", drift="clean", tools="", calls=1, errors=0, guided=0, attention="", score=None,
    snapshot="", started_at=0, closed_at=1, active_us=0,
)  # fmt: skip
GOOD = AnswerFacts("stop", "")


def step(source: str = "", verdict: str = "keep", elsewhere: str = "") -> PlannedStep:
    if not source:
        return PlannedStep(ROW, None, elsewhere)
    counted = SourceVerdict(3, 1, source, verdict, "ada", "it failed", 0, 8)  # type: ignore[arg-type]
    return PlannedStep(ROW, counted, elsewhere)


def other(source: str = "", errors: int = 0) -> PlannedStep:
    """An attempt that does not count."""
    planned = step(source, "mask")
    return replace(planned, row=msgspec.structs.replace(ROW, current=0, errors=errors))


DEFAULT = RowOptions()


@dataclass(frozen=True)
class Case:
    """A scenario."""

    name: str
    step: PlannedStep
    answer: AnswerFacts
    weight: float
    why: str = ""
    options: RowOptions = DEFAULT


PAPER = RowOptions(masking=False)
STRICT = RowOptions(unjudged="mask")
WHOLE = RowOptions(cut="keep")
CUT = AnswerFacts("length", "")
EMPTY = AnswerFacts("stop", "", empty=True)
UNSTOPPED = AnswerFacts("stop", "", stopped=False)
NO_CALL = AnswerFacts("stop", "it has no call")
STOPPED = AnswerFacts("interrupted", "interrupted by a person")

CASES = [
    Case("nobody judged it", step(), GOOD, 1),
    Case("nobody judged it, and only judged steps count", step(), GOOD, 0, "not judged", STRICT),
    Case("a person keeps it", step("human"), GOOD, 1, options=STRICT),
    Case("a person masks it", step("human", "mask"), GOOD, 0, "mask: human it failed"),
    Case("a rule masks it", step("rule", "mask"), GOOD, 0, "mask: rule it failed"),
    Case("a judge masks it", step("judge", "mask"), GOOD, 0, "mask: judge it failed"),
    Case("no action", step(), NO_CALL, 0, "no action: it has no call"),
    Case("no action, kept by a judge", step("judge"), NO_CALL, 1),
    Case("cut", step(), CUT, 0, "cut at its limit"),
    Case("cut, and a judge keeps the decision", step("judge"), CUT, 0, "cut at its limit"),
    Case("cut, and a person keeps it", step("human"), CUT, 1),
    Case("cut, where cuts are trained", step(), CUT, 1, options=WHOLE),
    Case("cut and masked: the verdict is the reason", step("rule", "mask"), CUT, 0, "mask: rule"),
    Case("the engine left the stop token out", step(), UNSTOPPED, 0, "ended without a stop token"),
    Case("the same, where cuts are trained", step(), UNSTOPPED, 1, options=WHOLE),
    Case("interrupted", step(), STOPPED, 0, "interrupted"),
    Case("interrupted, kept by a person", step("human"), STOPPED, 0, "interrupted"),
    Case("interrupted, without masking", step(), STOPPED, 0, "interrupted", PAPER),
    Case("masked, without masking", step("human", "mask"), GOOD, 1, options=PAPER),
    Case("no action, without masking", step(), NO_CALL, 1, options=PAPER),
    Case("cut, without masking", step(), CUT, 1, options=PAPER),
    Case("of a parent", step("human", elsewhere="p"), GOOD, 0, "trained with rollout p"),
    Case("of a parent, without masking", step(elsewhere="p"), GOOD, 0, "trained with", PAPER),
    Case("another attempt, failed", other(errors=1), GOOD, 0, "failed: another attempt counts"),
    Case("another attempt, failed and masked", other("human", 1), GOOD, 0, "mask: human"),
    Case("another attempt, failed, without masking", other(errors=1), GOOD, 1, options=PAPER),
    Case("another attempt that came right", other(), GOOD, 1),
    Case("masked by a person, in RL", step("human", "mask"), GOOD, 0, "mask: human", ROW_OPTIONS),
    Case("masked by a judge, in RL", step("judge", "mask"), GOOD, 1, options=ROW_OPTIONS),
    Case("masked by a rule, in RL", step("rule", "mask"), GOOD, 1, options=ROW_OPTIONS),
    Case("kept by a person, and cut, in RL", step("human"), CUT, 1, options=ROW_OPTIONS),
    Case("no action, in RL", step(), NO_CALL, 1, options=ROW_OPTIONS),
    Case("another attempt, failed, in RL", other(errors=1), GOOD, 1, options=ROW_OPTIONS),
    Case("nothing was said", step("human"), EMPTY, 0, "the answer is empty"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_an_answer_weighs(case: Case) -> None:
    weight = compute_answer_weight(case.step, case.answer, case.options)
    assert weight.weight == case.weight
    assert weight.reason.startswith(case.why)
    assert bool(weight.reason) == (case.weight == 0), "a reason exactly when it is not trained"


@pytest.mark.parametrize(
    ("malformed", "errors", "why"),
    [
        ("no JSON", [], "no JSON"),
        ("", [], "it has no call"),
        ("", ["no tool `lss`"], "no tool `lss`"),
        ("", ["no tool `lss`", "no argument `pth`"], "no tool `lss`"),
        ("", ["no tool `lss`", ""], ""),
        ("", [""], ""),
    ],
)
def test_what_is_no_action(malformed: str, errors: list[str], why: str) -> None:
    """It weighs nothing whether or not a rule was run."""
    assert no_action_reason(malformed, errors) == why


def test_whose_verdict_it_was_is_told() -> None:
    assert compute_answer_weight(step("judge", "mask"), GOOD, RowOptions()).source == "judge"
    assert compute_answer_weight(step("human"), GOOD, RowOptions()).source == "human"
    assert compute_answer_weight(step(), GOOD, RowOptions()).source == "not judged"
    assert compute_answer_weight(step("judge"), STOPPED, RowOptions()).source == "", (
        "no verdict counts there"
    )


def test_a_copy_weighs_nothing_and_names_its_row() -> None:
    kept_weight = compute_answer_weight(step("human"), GOOD, RowOptions())
    assert weight_of_copy(kept_weight, "r/0.0")[:3] == (0.0, "trained in row r/0.0", "")
    masked = compute_answer_weight(step("human", "mask"), GOOD, RowOptions())
    assert weight_of_copy(masked, "r/0.0")[:3] == (0.0, "masked in row r/0.0", "")
    other = compute_answer_weight(step(elsewhere="p"), GOOD, RowOptions())
    assert weight_of_copy(other, "r/0.0").reason == "trained with rollout p", "it has no row here"


def test_a_summary_is_trained_unless_it_was_cut() -> None:
    assert weigh_summary(GOOD, RowOptions()).weight == 1
    assert weigh_summary(CUT, RowOptions()).weight == 0
    assert weigh_summary(CUT, replace(WHOLE)).weight == 1
