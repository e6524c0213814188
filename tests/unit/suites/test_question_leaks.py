"""Planted duplicates are found, and questions that are only alike are left."""

import pytest

from houston_daemon.suites.question_leaks import MIN_TEXT_CHARACTERS, TrainingText, find_leaks

PROBLEM = (
    "Every morning Aya goes for a $9$-kilometer-long walk and stops at a coffee shop afterwards."
    " When she walks at a constant speed of $s$ kilometers per hour, the walk takes her 4 hours,"
    " including $t$ minutes spent in the coffee shop. When she walks $s+2$ kilometers per hour, the"
    " walk takes her 2 hours and 24 minutes, including $t$ minutes spent in the coffee shop."
)
REWORDED = (
    "Aya takes a walk of 9 kilometers every morning and afterwards stops at a coffee shop. At a"
    " constant speed of s kilometers per hour it takes 4 hours including t minutes in the coffee"
    " shop; at s + 2 kilometers per hour it takes 2 hours and 24 minutes including the t minutes."
)
OTHER_NUMBERS = PROBLEM.replace("9", "12").replace("24", "36")
OTHER_PROBLEM = (
    "A list has 2 zeros, 4 ones, 9 twos and 24 threes; 2 of its entries are drawn at random."
)


@pytest.mark.parametrize(
    ("trained", "why"),
    [
        (PROBLEM, "text"),
        (PROBLEM.upper(), "text"),
        (PROBLEM.replace("$", "").replace(" ", "\n"), "text"),
        (PROBLEM.replace("$9$", r"\(9\)").replace("$s$", r"$\,s\;$"), "text"),
        (f"Solve this.\n\nQuestion: {PROBLEM}\n\nAnswer with a number.", "text"),
        (PROBLEM[: len(PROBLEM) // 2], "text"),
        (PROBLEM[7 : len(PROBLEM) // 2], "text"),
        (REWORDED, "numbers"),
        (OTHER_NUMBERS, ""),
        (OTHER_PROBLEM, ""),
        ("Find the value of x.", ""),
        ("Every", ""),
        ("", ""),
    ],
    ids=[
        "verbatim", "another case", "other white space", "other LaTeX", "within instructions",
        "a half of it", "a part of it", "reworded", "other numbers", "the same numbers",
        "unrelated", "one word", "nothing",
    ],
)  # fmt: skip
def test_a_planted_duplicate_is_dropped_and_says_why(trained: str, why: str) -> None:
    leaks = find_leaks([("a", PROBLEM), ("b", "Unlike it.")], [TrainingText("old: 7", trained)])
    assert [tuple(leak) for leak in leaks] == ([("a", "old: 7", why)] if why else [])


def test_each_question_is_dropped_once_and_in_order() -> None:
    training = [TrainingText("one", OTHER_PROBLEM), TrainingText("two", PROBLEM)] * 2
    leaks = find_leaks([("a", PROBLEM), ("b", OTHER_PROBLEM)], training)
    assert [(leak.id, leak.where) for leak in leaks] == [("a", "two"), ("b", "one")]


@pytest.mark.parametrize(
    ("asked", "trained", "leaks"),
    [
        ("What is 3 + 4?", "what is 3+4", True),
        ("What is 3 + 4?", "What is 3 + 4? What is 4 + 5?", False),
        ("Sort 3,1,2 by size at once.", "Now sort by size: 3, 1, 2 at once, please.", True),
        ("Sort 1,000 by 2 at once.", "Now at once sort by 2 the 1000.", True),
        ("Sort 1,000 by 2 at once.", "Now at once sort by 2 the 1 000.", False),
        ("?!", "...", False),
    ],
    ids=["short and the same", "short within another", "a list of numbers", "thousands", "others",
         "no letters"],
)  # fmt: skip
def test_what_counts_as_the_same(asked: str, trained: str, leaks: bool) -> None:
    assert bool(find_leaks([("a", asked)], [TrainingText("old", trained)])) == leaks


def test_every_place_of_a_question_within_a_text_is_found() -> None:
    """Wherever it begins, and however long it is from the least length on."""
    letters = "".join(chr(ord("a") + number * 7 % 26) + str(number) for number in range(60))
    for length in range(MIN_TEXT_CHARACTERS - 1, MIN_TEXT_CHARACTERS + 20):
        for start in range(50):
            part = letters[start : start + length]
            for asked, trained in ((part, letters), (letters, part)):
                found = find_leaks([("a", asked)], [TrainingText("old", trained)])
                assert bool(found) == (length >= MIN_TEXT_CHARACTERS), (length, start)
