"""Windows: each step is asked about once, everything fits, and nothing that counts is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer, TokenEstimator
from houston_daemon.review.judge import judge_template
from houston_daemon.review.judge.judge_prompt import JudgeWindow, WindowPlanner
from houston_shared.errors import ConfigurationError
from houston_shared.records import StepRecord
from houston_shared.task_tables import RuleSettings
from tests.support.judged_rollouts import step, trace
from tests.support.small_tokenizer import small_tokenizer

SIZE = 24_000
"""The small tokenizer knows few words: four of its tokens are one of a real one."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PromptTokenizer]:
    yield PromptTokenizer(small_tokenizer(tmp_path_factory.mktemp("tokens")))


def planned(
    tokens: TokenEstimator | PromptTokenizer,
    steps: list[StepRecord],
    size: int = SIZE,
    forks: tuple[int, ...] = (),
) -> list[JudgeWindow]:
    rollout = trace(steps, forks=forks)
    numbers = [step.step for step in steps]
    return list(
        WindowPlanner(rollout, judge_template.load_template(), tokens, size).windows(numbers)
    )


def fits(window: JudgeWindow, tokens: TokenEstimator | PromptTokenizer, size: int) -> bool:
    prompt = tokens.count(window.system) + tokens.count(window.message)
    return prompt + window.answer_tokens <= size


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 20_000), min_size=1, max_size=40),
    messages=st.lists(st.text(min_size=1, max_size=400), max_size=12),
    task=st.integers(0, 30_000),
)
def test_windows_ask_about_each_step_once_in_order_and_fit(
    lengths: list[int], messages: list[str], task: int
) -> None:
    tokens, size = TokenEstimator(), 8192
    heard = dict(enumerate(messages))
    steps = [
        step(number, "o" * length, guidance=heard.get(number, ""))
        for number, length in enumerate(lengths, 1)
    ]
    rollout = trace(steps, instructions="t" * task)
    numbers = [step.step for step in steps]
    planner = WindowPlanner(rollout, judge_template.load_template(), tokens, size)
    windows = list(planner.windows(numbers))
    assert [number for window in windows for number in window.judged] == numbers
    assert all(fits(window, tokens, size) for window in windows)


def test_task_scores_and_guidance_stand_in_every_window(tokens: PromptTokenizer) -> None:
    steps = [step(number, "x" * 3000) for number in range(1, 31)]
    steps[4] = step(5, "x", guidance="Keep the test set out of it.")
    steps[9] = step(10, "scored", score=13.5)
    steps[19] = step(20, "scored", score=41.25)
    windows = planned(tokens, steps, forks=(15,))
    assert len(windows) > 3
    for window in windows:
        assert "Count the words." in window.message
        assert "step 5:\n<real_user>Keep the test set out of it.</real_user>" in window.message
        assert "The maximum possible is 100." in window.message
        assert "step 10: 13.5" in window.message and "step 20: 41.25" in window.message
    first, last = windows[0].message, windows[-1].message
    assert "There was no summary yet." in first
    assert "best before the last summary (before step 15): 13.5." in last
    assert "best before step" in last


MAXIMA = {
    "as the task says": (RuleSettings(max_score=60), "The maximum possible is 60."),
    "also a part of a point": (RuleSettings(max_score=99.5), "The maximum possible is 99.5."),
    "where it says nothing": (RuleSettings(), "The maximum possible is 100."),
}


@pytest.mark.parametrize("name", MAXIMA)
def test_the_highest_score_is_the_tasks_as_it_is_for_the_rules(name: str) -> None:
    rules, words = MAXIMA[name]
    rollout = trace([step(1, "scored", score=60), step(2)], rules=rules)
    (window,) = WindowPlanner(
        rollout, judge_template.load_template(), TokenEstimator(), SIZE
    ).windows([1, 2])
    assert words in window.message and "step 1: 60" in window.message
    assert window.message.count("maximum possible is") == 1


def test_a_window_shows_what_was_before_and_what_followed(tokens: PromptTokenizer) -> None:
    steps = [step(number, f"seen {number} " + "x" * 3000) for number in range(1, 21)]
    middle = planned(tokens, steps)[1]
    before, after = middle.judged[0] - 1, middle.judged[-1] + 1
    assert f"step {before} begins, context only]" in middle.message
    assert f"step {after} begins, context only]" in middle.message
    assert f"step {middle.judged[0]} begins]" in middle.message
    assert "\n1: run_command ls" in middle.message, "far steps stand there with a line each"
    assert middle.message.rstrip().endswith(f"{', '.join(map(str, middle.judged))}.")


def test_the_same_rollout_gives_the_same_windows(tokens: PromptTokenizer) -> None:
    steps = [step(number, "x" * 2000) for number in range(1, 10)]
    assert planned(tokens, steps) == planned(tokens, steps)


def test_steps_that_are_not_shown_whole_are_counted(tokens: PromptTokenizer) -> None:
    windows = planned(tokens, [step(1, "x" * 200_000), step(2)])
    assert sum(window.shortened for window in windows) == 1


def test_a_window_without_room_is_refused_with_what_to_do(tokens: PromptTokenizer) -> None:
    with pytest.raises(ConfigurationError) as refused:
        planned(tokens, [step(1)], size=3000)
    assert "3000 tokens is too small" in refused.value.cause
    assert "--window" in refused.value.next


def test_the_whole_of_smollm_fits_its_window() -> None:
    """8,192 positions are what the small real model has."""
    from houston_daemon.engines.local_model import model_path

    folder = model_path()
    if folder is None:
        pytest.skip("the model was not fetched")
    tokens = PromptTokenizer(str(Path(folder) / "tokenizer.json"))
    windows = planned(tokens, [step(number, "word " * 700) for number in range(1, 12)], size=8192)
    assert all(fits(window, tokens, 8192) for window in windows)
    assert max(len(window.judged) for window in windows) > 1
