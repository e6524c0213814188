"""The cases: two for each point, and the judge is shown what it needs to tell."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from houston_daemon.prompts.prompt_tokenizer import TokenEstimator
from houston_daemon.review.judge import judge_calibration, judge_template
from houston_daemon.review.judge.judge_calibration import JudgeCase
from houston_daemon.review.judge.judge_prompt import WindowPlanner
from houston_shared.errors import ConfigurationError
from tests.support.judged_rollouts import read_back

CASES = judge_calibration.load_cases()
PROSE = {"decision"}
"""What the template says in prose and not as a point: decision against execution, early or late."""


def test_each_point_of_the_template_has_a_step_to_keep_and_one_to_mask() -> None:
    meant: dict[str, Counter[str]] = defaultdict(Counter)
    for case in CASES:
        meant[case.criterion][case.meant] += 1
    assert set(meant) == {*judge_template.load_template().criteria, *PROSE}
    for criterion, counts in meant.items():
        assert counts["keep"] == counts["mask"] >= 1, criterion


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.criterion}-{c.meant}-{c.name}")
def test_the_judge_is_shown_what_the_case_turns_on(case: JudgeCase) -> None:
    steps = [step.step for step in case.trace.steps]
    (window,) = WindowPlanner(
        case.trace, judge_template.load_template(), TokenEstimator(), 16_000
    ).windows(steps)
    for text in case.holds:
        assert text in window.message
    key = window.message.partition("The key of the frames is ")[2][:8]
    assert list(read_back(window.message, key)) == steps
    assert case.step in window.judged


@pytest.mark.parametrize(
    "text",
    [
        "",
        "criterion: x",
        "criterion: x\ncases: [{name: a, meant: maybe, step: 1, steps: []}]",
        "criterion: x\ncases: [{name: a, meant: keep, step: 2, steps: []}]",
        "criterion: !!python/object/apply:os.system ['true']\ncases: []",
    ],
)
def test_a_file_that_is_no_case_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"mine\.yaml"):
        judge_calibration.load_cases(tmp_path)
    with pytest.raises(ConfigurationError, match="no cases"):
        judge_calibration.load_cases(tmp_path / "nothing")
