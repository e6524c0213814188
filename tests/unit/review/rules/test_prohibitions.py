"""What a person's words forbid: plain words are understood, others are left to a reader."""

import pytest

from houston_shared.guidance_prohibitions import (
    Prohibition,
    find_permissions,
    find_prohibitions,
)

SAID: dict[str, list[Prohibition]] = {
    "Do not use transformers.": [Prohibition("use", "transformers")],
    "Please don't use the transformers library, use vLLM.": [Prohibition("use", "transformers")],
    "do not use transformers for inference": [Prohibition("use", "transformers", "inference")],
    "Do not run a.py again, mend b.py first.": [Prohibition("run", "a.py", now=True)],
    "First mend b.py; do not run a.py.": [Prohibition("run", "a.py")],
    "Never run `make clean` again!": [Prohibition("run", "make clean")],
    "stop editing config.json": [Prohibition("write", "config.json")],
    "Stop editing the config.json file because it is right.": [Prohibition("write", "config.json")],
    "You should not touch eval.py or the data.": [Prohibition("write", "eval.py")],
    "Avoid using pandas; it is slow.": [Prohibition("use", "pandas")],
    "Stop sleeping.": [Prohibition("call", "sleep")],
    "stop evaluating, you have one left": [Prohibition("call", "eval")],
    "Don't submit again": [Prohibition("call", "eval")],
    "Do not finish.": [Prohibition("call", "finish")],
    'never use "--fp16" and "--lora"': [Prohibition("use", "--fp16"), Prohibition("use", "--lora")],
    "Do not use sed. Do not use awk.": [Prohibition("use", "sed"), Prohibition("use", "awk")],
    "Please use vLLM instead of transformers.": [Prohibition("use", "transformers")],
    "use vllm, not transformers for inference": [Prohibition("use", "transformers", "inference")],
    "Run train.sh rather than my_train.py!": [Prohibition("run", "my_train.py")],
    "test.jsonl must not be used for training": [],
    "The file `eval.py` should never be changed.": [],
    "Don't kill the training, wait.": [Prohibition("call", "kill_session_processes")],
    "Look at the data and do not use pandas": [Prohibition("use", "pandas")],
    "You must not use pandas": [Prohibition("use", "pandas")],
    "You never read README.md!": [],
    "You do not use vLLM; why?": [],
    "The scripts do not use vllm.": [],
    "If training runs, do not finish.": [],
    "Do not finish yet.": [],
    "train.py may not be run until the data is clean": [],
    "Use vLLM instead of it.": [],
    "Do not use it.": [],
    "Do not use so many files.": [],
    "Don't stop.": [],
    "Do not run train.py until the data is clean.": [],
    "Do not use LoRA unless memory is short.": [],
    "Do not finish before you have evaluated.": [],
    "Do not sleep for more than ten minutes.": [],
    "Stop wasting time.": [],
    "Look at the data first; the labels are wrong.": [],
    "I use transformers every day.": [],
    "Why do you not use Adam's rule and Bob's?": [],
}


@pytest.mark.parametrize("text", SAID)
def test_what_is_forbidden(text: str) -> None:
    assert find_prohibitions(text) == SAID[text]


def test_what_is_allowed_again() -> None:
    assert find_permissions("You can now use transformers.") == [Prohibition("use", "transformers")]
    assert find_permissions("Now edit config.json") == [Prohibition("write", "config.json")]
    assert find_permissions("Do not use transformers.") == []


@pytest.mark.parametrize(
    ("text", "passing"),
    [("Stop sleeping.", True), ("Do not use eval.", True), ("Do not run a.py, mend it first", True),
     ("Do not run a.py", False), ("Do not use LoRA.", False)],
)  # fmt: skip
def test_what_is_forbidden_for_the_moment(text: str, passing: bool) -> None:
    assert [prohibition.is_passing for prohibition in find_prohibitions(text)] == [passing]
