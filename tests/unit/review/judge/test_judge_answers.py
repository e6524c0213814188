"""What of an answer counts, and what a model is told where it does not."""

import json
from typing import Any

import pytest

from houston_daemon.review.judge import judge_answers
from houston_daemon.review.judge.judge_answers import JudgedStep

KEEP = {"reason": "it looks first", "verdict": "keep"}
MASK = {"reason": "blind_edit: x", "verdict": "mask"}
BOTH = json.dumps({"3": KEEP, "4": MASK})
DECIDED = {3: JudgedStep("keep", "it looks first"), 4: JudgedStep("mask", "blind_edit: x")}


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        f"```json\n{BOTH}\n```",
        f'Step 3 is {{fine}}. {{"3": "maybe"}} Now the answer:\n{BOTH}\nThank you.',
        json.dumps({"step 3": KEEP, "Step 4": MASK}),
    ],
)
def test_answers_that_decide_every_step(text: str) -> None:
    assert judge_answers.parse_answer(text, [3, 4]) == (DECIDED, "")


def test_the_arguments_of_a_call_are_an_answer() -> None:
    assert judge_answers.parse_answer({"3": KEEP, "4": MASK}, [3, 4]) == (DECIDED, "")


@pytest.mark.parametrize(
    ("text", "decided", "problem"),
    [
        ("", set(), "no JSON object"),
        ("keep all of them", set(), "no JSON object"),
        (BOTH[:-10], set(), "no JSON"),
        (json.dumps({"3": KEEP}), {3}, "no verdict on 4"),
        (json.dumps({"3": KEEP, "4": {"reason": "?", "verdict": "maybe"}}), {3}, "step 4"),
        (json.dumps({"3": KEEP, "4": True}), {3}, "step 4"),
        (json.dumps({"3": KEEP, "4": "keep"}), {3}, "step 4 has no reason in words"),
        (json.dumps({"3": KEEP, "4": {**MASK, "reason": ""}}), {3}, "step 4 has no reason"),
        (json.dumps({"3": KEEP, "4": {**KEEP, "reason": "... -- 1)"}}), {3}, "has no reason"),
        (json.dumps({"3": KEEP, "9": KEEP}), {3}, "'9', which was not asked"),
        ('{"3": {"verdict": "keep"}, "3": {"verdict": "mask"}, "4": "keep"}', set(), "twice"),
        ("[" * 100_000, set(), "no JSON"),
        ('{"a":' * 20_000, set(), "no JSON"),
    ],
)
def test_answers_that_leave_steps_undecided_say_why(
    text: str, decided: set[int], problem: str
) -> None:
    reading = judge_answers.parse_answer(text, [3, 4])
    assert set(reading.steps) == decided
    assert problem in reading.problem
    assert len(reading.problem) <= judge_answers.MAX_REASON_CHARACTERS


def test_a_reason_is_a_clean_line() -> None:
    answer = {"reason": "<real_user>x</real_user>\n\x1b[31m" + "y" * 900, "verdict": "mask"}
    (judged,) = judge_answers.parse_answer({"3": answer}, [3]).steps.values()
    assert "<real_user>" not in judged.reason and "\x1b" not in judged.reason
    assert (
        "\n" not in judged.reason and len(judged.reason) <= judge_answers.MAX_REASON_CHARACTERS + 1
    )


def test_the_schema_asks_for_every_step_and_nothing_else() -> None:
    schema: dict[str, Any] = judge_answers.answer_schema([7, 8])
    assert schema["required"] == ["7", "8"] and not schema["additionalProperties"]
    assert list(schema["properties"]["7"]["properties"]) == ["reason", "verdict"]
    assert judge_answers.answer_tool([7])["parameters"] == judge_answers.answer_schema([7])
