"""What rows have lost: what no other line trains, and what copies of it say."""

from dataclasses import replace

from houston_daemon.training.export.export_line_builder import (
    AnswerLosses,
    LineBuilder,
    trained_answers,
)
from houston_daemon.training.export.export_manifest import LEFT_OUT_REASON
from houston_daemon.training.export.export_run import FORMATS
from houston_daemon.training.rows.shared_steps import AnswerKey
from houston_daemon.training.rows.training_row import TokenRow
from tests.support.synthetic_rows import KEPT, MASKED, made
from tests.training.export.chat_rows import step, talk


def actions(*steps: int) -> set[AnswerKey]:
    return {AnswerKey("policy", step) for step in steps}


def test_what_another_row_trains_is_not_lost() -> None:
    """As under `--overlap paper`: a fork's row trains again what it keeps, before it or after."""
    first, second = made(((5, KEPT), (5, KEPT))), made(((5, KEPT), (5, KEPT)), context=1, step=2)
    for refused, written in ((first, second), (second, first)):
        losses = AnswerLosses()
        for row in (first, second):
            losses.note_row(row, set(trained_answers(row)) if row is written else ())
        assert losses.lost == {"r-1": set(trained_answers(refused)) - set(trained_answers(written))}


def test_rollouts_lose_for_themselves() -> None:
    losses = AnswerLosses()
    losses.note_row(made(((5, KEPT), (4, MASKED))), ())
    losses.note_row(made(rollout="r-2"), actions(1, 3))
    summary = made(((5, KEPT),), rollout="r-3", kind="summary", step=7)
    losses.note_row(summary, ())
    assert losses.lost == {"r-1": actions(1), "r-3": {AnswerKey("summary", 7)}}


def copied(row: TokenRow, of: TokenRow) -> TokenRow:
    """A row whose first answer is a copy of one that another row trains."""
    first, *rest = row.spans
    return replace(row, spans=(replace(first, weight=0.0, why=f"trained in row {of.id}"), *rest))


def test_a_copy_does_not_say_that_it_is_trained_where_its_row_was_left_out() -> None:
    first = made(((5, KEPT), (5, KEPT)))
    second = copied(made(((5, KEPT), (5, KEPT)), context=1, step=2), first)
    losses = AnswerLosses()
    assert losses.corrected_row(second) == second
    losses.note_row(first, ())
    true = losses.corrected_row(second)
    assert isinstance(true, TokenRow)
    assert [span.why for span in true.spans] == [f"left out with row {first.id}", ""]


def test_values_nested_too_deep_for_python_are_refused_with_their_row() -> None:
    """One step of one rollout must not end the export of all."""
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    for name, format in FORMATS.items():
        if format.unit != "messages":
            continue
        building = LineBuilder(format)
        row = talk(step(1, arguments=({"value": deep},)), step(2), id="r-1/0.0")
        assert all(built.answers == actions(2) for built in building.lines(row)), name
        assert building.refused and building.refused[0].row.startswith("r-1/0.0"), name
        assert AnswerKey("policy", 1) in building.losses.lost["r-1"], name
        assert list(building.lines(talk(step(3), id="r-2/0.0"))), "the next row is none the worse"


def test_what_is_left_out_is_counted_once_as_that() -> None:
    """A slime row with a forbidden token: the answer is not trained, and neither are its copies."""
    building = LineBuilder(FORMATS["slime"])
    bad = talk(step(1, thought="ends <|im_end|> early"), step(2), id="r-1/0.0")
    assert list(building.lines(bad))
    copies = step(1, thought="ends <|im_end|> early", weight=0.0)
    copies[0] = replace(copies[0], why="trained in row r-1/0.0")
    assert list(building.lines(talk(copies, step(3), id="r-1/1.0")))
    assert building.counts().untrained == {LEFT_OUT_REASON: 2}
    assert building.counts().trained == 2
