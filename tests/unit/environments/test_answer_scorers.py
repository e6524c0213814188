"""Answers as models write them, scored as their questions ask."""

import json
import subprocess
import sys

import pytest

from houston_daemon.environments.questions import answer_scorers, math_child
from houston_daemon.environments.questions.answer_scorers import (
    choice_score,
    math_score,
    same_answer,
)
from houston_daemon.environments.questions.hidden_tests import program_of, same_output, same_result


@pytest.mark.parametrize(
    ("answer", "gold", "same"),
    [
        ("204", "204", True),
        ("073", "73", True),
        (r"\boxed{204}", "204", True),
        ("The answer is $204$.", "204", True),
        (r"\frac{1}{2}", "0.5", True),
        ("1/2", r"\frac12", True),
        (r"2\sqrt{3}", r"\sqrt{12}", True),
        ("x^2+2x+1", "(x+1)^2", True),
        (r"\{2, 1\}", r"\{1, 2\}", True),
        ("203", "204", False),
        (r"\sqrt{13}", r"\sqrt{12}", False),
        ("I do not know", "204", False),
        ("", "204", False),
        (r"\frac{", "204", False),
    ],
)
def test_mathematics_is_compared_by_what_it_means(answer: str, gold: str, same: bool) -> None:
    assert (same_answer(answer, [gold]) or math_child.same_value(answer, gold)) == same


@pytest.mark.parametrize(("gold", "score"), [("-1", 0.0), ("1/2", 1.0)])
def test_mathematics_is_compared_in_a_process_of_its_own(gold: str, score: float) -> None:
    assert math_score(r"\frac{2}{4}", ["7", gold]).exact == score


def test_a_comparison_that_does_not_end_counts_as_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answer_scorers, "MATH_SECONDS", 3)
    assert math_score("$10^{10^{10}}$", ["5"]).exact == 0.0
    assert "more than 3 s of processor time" in caplog.text


def test_a_comparison_ends_though_nobody_waits_for_it() -> None:
    """A worker that is killed leaves none behind."""
    asked = json.dumps({"answer": "$10^{10^{10}}$", "gold": ["5"]})
    ended = subprocess.run(
        [sys.executable, "-P", "-m", math_child.__name__, "2"],
        input=asked, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode != 0 and not ended.stdout


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("B", True),
        ("b", True),
        ("(B)", True),
        ("B.", True),
        ("**B**", True),
        (r"\boxed{B}", True),
        (r"$\boxed{\text{B}}$", True),
        ("Answer: B", True),
        ("The answer is (B).", True),
        ("The correct choice is B", True),
        ("B) Thymine", True),
        ("(B) Thymine, since it pairs", True),
        ("Thymine", True),
        ("thymine.", True),
        (r"Final answer: \boxed{B}", True),
        (r"The answer is $\boxed{\textbf{(B)}}$.", True),
        ("The correct answer is option B", True),
        ("answer: b", True),
        ("B - Thymine", True),
        ("Answer: B, since A pairs with nothing", True),
        ("The answer is B, I think", True),
        ("The answer is B or C", False),
        ("Answer: B, C", False),
        ("Answer: B/C", False),
        ("The answer is B and C are close", False),
        ("B, C", False),
        ("A", False),
        ("The answer is a thymine", False),
        ("A or B", False),
        ("(A) or (B)", False),
        ("Answer: A, not (B)", False),
        ("Guanine", False),
        ("", False),
        ("Answer:" + " " * 1_000_000 + "B", True),
        ("\\text{" * 200_000 + "B" + "}" * 200_000, False),
        ("answer " * 200_000, False),
        ("I weigh one after another. " * 200 + "Therefore the answer is B.", True),
        ("I weigh one after another. " * 200 + "Therefore the answer is A.", False),
        ("The answer is B. " + "This is why. " * 1_000, True),
        ("The answer is B. " + "This is why. " * 1_000 + "No, the answer is A.", False),
        ("x" * 990 + " answer: Benzene" + " more" * 1_000, False),
    ],
)
def test_a_choice_is_a_letter_in_any_usual_form_or_its_text(answer: str, right: bool) -> None:
    assert choice_score(answer, ("B", "Thymine")).exact == float(right)


@pytest.mark.parametrize(
    ("answer", "text", "right"),
    [
        ("5", "-5", False),
        ("-5", "-5", True),
        ("x-1", "x+1", False),
        ("10^4", "10^-4", False),
        ("$10^{-4}$ m", "10^{-4} m", True),
        ("(B) (E)-but-2-ene", "(E)-but-2-ene", True),
        ("(B), which is (E)-but-2-ene", "(E)-but-2-ene", False),
        ("Answer: (B) (E)-but-2-ene", "(E)-but-2-ene", True),
        ("(C) (E)-but-2-ene", "(E)-but-2-ene", False),
        ("A - B", "A - B", True),
        ("C", "C", False),
    ],
)
def test_the_text_of_a_choice_is_told_from_that_of_another(
    answer: str, text: str, right: bool
) -> None:
    assert choice_score(answer, ("B", text)).exact == float(right)


@pytest.mark.parametrize(
    ("said", "expected", "same"),
    [
        ("3\n", "3", True),
        ("3  \n\n", "3\n", True),
        ("1 2\n3", "1 2\n3\n", True),
        ("1.50", "1.5", True),
        ("Yes", "yes", False),
        ("1 2 3", "1 2\n3", False),
        ("", "0", False),
    ],
)
def test_outputs_are_the_same_but_for_spaces_and_zeros(
    said: str, expected: str, same: bool
) -> None:
    assert same_output(said, expected) == same


@pytest.mark.parametrize(
    ("said", "expected", "same"),
    [
        ("[1, 2]", "[1,2]", True),
        ("1", "2", False),
        ("no JSON", "1", False),
        ("[" * 200_000, "[]", False),
    ],
)
def test_results_are_the_same_as_json(said: str, expected: str, same: bool) -> None:
    assert same_result(said, expected) == same


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("print(1)", "print(1)"),
        ("So:\n```python\nprint(1)\n```\nThat is it.", "print(1)\n"),
        ("```\nx\n```\nor\n```py\ny\n```", "y\n"),
    ],
)
def test_the_last_fence_is_the_program(answer: str, program: str) -> None:
    assert program_of(answer) == program
