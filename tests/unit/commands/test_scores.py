"""Scores as `houston rollout show` counts them: a number belongs to a submission that was used."""

from houston_console.commands.rollout_view_commands import _score_rows
from houston_shared.store.workspace_queries import EvaluationRow


def evaluation(number: int, score: float | None, state: str) -> EvaluationRow:
    fields = {"number": number, "step": number * 2, "score": score, "state": state}
    return EvaluationRow(rollout="r1", seconds=1.0, seq=1, at=1, **fields)


def test_an_evaluation_that_used_no_submission_has_no_number() -> None:
    scores = [(40.0, "scored"), (None, "format"), (None, "failed"), (30.5, "scored")]
    lines = _score_rows([evaluation(n, *score) for n, score in enumerate(scores, 1)])
    assert [(line["number"], line["score"], line["step"]) for line in lines] == [
        (1, 40.0, 2),
        (None, None, 4),
        (None, None, 6),
        (2, 30.5, 8),
    ]
