"""The suite `python-problems`: questions easier to compute than to guess, with a code tool.

Each is made by template and seed, with its exact answer and a program that prints it. No two splits
share a sentence, or the numbers that are asked about (kept apart by their remainder).
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_REMAINDERS = {"train": tuple(range(8)), "validation": (8,), "test": (9,)}
"""Last digits of the first number of a question."""


@dataclass(frozen=True, slots=True)
class PythonProblem:
    """One question."""

    question: str
    answer: str
    program: str
    """Prints the answer."""
    others: tuple[tuple[str, str], ...]
    """Programs for other questions about the same numbers, each with what it prints."""


@dataclass(frozen=True, slots=True)
class _Template:
    ask: Mapping[str, str]
    """By split how it is said; {a}, {b}, {c} are its numbers."""
    program: str
    answer: Callable[[int, int, int], int]


_TEMPLATES = (
    _Template(
        {
            "train": "What is {a} times {b}, plus {c}?",
            "validation": "Multiply {a} by {b} and add {c}.",
            "test": "Take {a}, multiply it by {b}, then add {c}. What do you get?",
        },
        "print({a} * {b} + {c})",
        lambda a, b, c: a * b + c,
    ),
    _Template(
        {
            "train": "What is the sum of all whole numbers from {c} to {a}?",
            "validation": "Add up every whole number from {c} to {a}.",
            "test": "{c} + … + {a}, all whole numbers between them too: what is the sum?",
        },
        "print(sum(range({c}, {a} + 1)))",
        lambda a, b, c: sum(range(c, a + 1)),
    ),
    _Template(
        {
            "train": "How many whole numbers from 1 to {a} can be divided by {c}?",
            "validation": "Count the multiples of {c} from 1 to {a}.",
            "test": "Of the whole numbers 1 to {a}, how many are multiples of {c}?",
        },
        "print(sum(n % {c} == 0 for n in range(1, {a} + 1)))",
        lambda a, b, c: a // c,
    ),
    _Template(
        {
            "train": "What is the remainder of {a} ** {c} divided by {b}?",
            "validation": "Divide {a} ** {c} by {b}; what remains?",
            "test": "{a} to the power of {c}, modulo {b}: which number is that?",
        },
        "print({a} ** {c} % {b})",
        lambda a, b, c: a**c % b,
    ),
    _Template(
        {
            "train": "What is the sum of the digits of {a} * {b}?",
            "validation": "Add up the digits of {a} * {b}.",
            "test": "Multiply {a} by {b}. What do the digits of that add up to?",
        },
        "print(sum(map(int, str({a} * {b}))))",
        lambda a, b, c: sum(map(int, str(a * b))),
    ),
)


def python_problem(split: str, index: int) -> PythonProblem:
    """Question number `index` of a split; the templates take turns."""
    source = random.Random(f"python-problems/1/{split}/{index}")
    template = _TEMPLATES[index % len(_TEMPLATES)]
    first = 10 * source.randrange(3, 60) + source.choice(_REMAINDERS[split])
    second, third = source.randrange(12, 99), source.randrange(3, 12)
    numbers = {"a": first, "b": second, "c": third}
    return PythonProblem(
        question=template.ask[split].format(**numbers),
        answer=str(template.answer(first, second, third)),
        program=template.program.format(**numbers),
        others=tuple(
            (other.program.format(**numbers), str(other.answer(first, second, third)))
            for other in _TEMPLATES
            if other is not template
        ),
    )
