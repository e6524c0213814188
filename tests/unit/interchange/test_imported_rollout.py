"""What is said of the end of an imported rollout, by the score that came with it."""

import pytest

from houston_daemon.interchange.imported_rollout import ImportedRollout, foreign_sample
from houston_shared.records import SampledElsewhere, ToolCall


@pytest.mark.parametrize(
    ("score", "signals"), [(1.0, ()), (0.2, ("low_finish",)), (None, ())], ids=str
)
def test_only_a_low_score_is_a_low_end(score: float | None, signals: tuple[str, ...]) -> None:
    rollout = ImportedRollout(SampledElsewhere(format="ATIF-v1.7"))
    rollout.user("Write it.")
    rollout.answer(foreign_sample("Done.", (ToolCall(id="a", name="finish", arguments={}),)))
    rollout.result("a", "finished")
    if score is not None:
        rollout.score(score, "scored", {})
    (step,) = rollout.message("t", "request").steps
    assert step.observation.attention == signals
