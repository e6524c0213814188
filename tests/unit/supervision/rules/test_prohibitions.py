"""What a person's words forbid: plain words are understood, others are left to a reader."""

import pytest

from houston_daemon.supervision.rules.prohibitions import Forbidden, allowed, forbidden

SAID: dict[str, list[Forbidden]] = {
    "Do not use transformers.": [Forbidden("use", "transformers")],
    "Please don't use the transformers library, use vLLM.": [Forbidden("use", "transformers")],
    "do not use transformers for inference": [Forbidden("use", "transformers", "inference")],
    "Do not run a.py again, mend b.py first.": [Forbidden("run", "a.py", now=True)],
    "First mend b.py; do not run a.py.": [Forbidden("run", "a.py")],
    "Never run `make clean` again!": [Forbidden("run", "make clean")],
    "stop editing config.json": [Forbidden("write", "config.json")],
    "Stop editing the config.json file because it is right.": [Forbidden("write", "config.json")],
    "You should not touch eval.py or the data.": [Forbidden("write", "eval.py")],
    "Avoid using pandas; it is slow.": [Forbidden("use", "pandas")],
    "Stop sleeping.": [Forbidden("call", "sleep")],
    "stop evaluating, you have one left": [Forbidden("call", "eval")],
    "Don't submit again": [Forbidden("call", "eval")],
    "Do not finish.": [Forbidden("call", "finish")],
    'never use "--fp16" and "--lora"': [Forbidden("use", "--fp16"), Forbidden("use", "--lora")],
    "Do not use sed. Do not use awk.": [Forbidden("use", "sed"), Forbidden("use", "awk")],
    "Please use vLLM instead of transformers.": [Forbidden("use", "transformers")],
    "use vllm, not transformers for inference": [Forbidden("use", "transformers", "inference")],
    "Run train.sh rather than my_train.py!": [Forbidden("run", "my_train.py")],
    "test.jsonl must not be used for training": [Forbidden("use", "test.jsonl", "training")],
    "The file `eval.py` should never be changed.": [Forbidden("write", "eval.py")],
    "Don't kill the training, wait.": [Forbidden("call", "kill_session_processes")],
    "Look at the data and do not use pandas": [Forbidden("use", "pandas")],
    "You must not use pandas": [Forbidden("use", "pandas")],
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
    assert forbidden(text) == SAID[text]


def test_what_is_allowed_again() -> None:
    assert allowed("You can now use transformers.") == [Forbidden("use", "transformers")]
    assert allowed("Now edit config.json") == [Forbidden("write", "config.json")]
    assert allowed("Do not use transformers.") == []


@pytest.mark.parametrize(
    ("text", "passing"),
    [("Stop sleeping.", True), ("Do not use eval.", True), ("Do not run a.py, mend it first", True),
     ("Do not run a.py", False), ("Do not use LoRA.", False)],
)  # fmt: skip
def test_what_is_forbidden_for_the_moment(text: str, passing: bool) -> None:
    assert [one.passing for one in forbidden(text)] == [passing]
