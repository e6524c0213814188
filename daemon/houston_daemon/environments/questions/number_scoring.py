"""Whether an answer is the gold answer of a problem in mathematics or code.

Where the gold answer is a number, the answer must be the same number, however it is written: 0.5,
1/2, \\frac{1}{2}, 50e-2, $0.50$. Integers and fractions are compared exactly, decimals to one
millionth of their size. Anything else must be the same text, but for spaces and case: the
normalisation of texts (SQuAD's) drops signs and points, which are all of a number.
"""

import re
from collections.abc import Sequence
from fractions import Fraction

_WRAPPED = re.compile(r"^\\boxed\{(.*)\}$|^\$(.*)\$$|^\\\((.*)\\\)$|^`(.*)`$", re.DOTALL)
_FRACTION = re.compile(r"^([+-]?)\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}$")
_PLAIN = re.compile(r"^[+-]?(\d{1,3}(,\d{3})+|\d+)?(\.\d*)?([eE][+-]?\d{1,3})?$")
_LONGEST = 100
"""Characters of a number; longer ones are compared as texts."""
_TOLERANCE = Fraction(1, 10**6)


def number(text: str) -> tuple[Fraction, bool] | None:
    """The number that a text is, and whether it is exact; None where it is none."""
    bare = bared(text).replace("−", "-").replace(" ", "")
    if len(bare) > _LONGEST:
        return None
    if found := _FRACTION.match(bare):
        bare = f"{found[1]}{found[2]}/{found[3]}"
    above, slash, below = bare.partition("/")
    top, bottom = _decimal(above), _decimal(below) if slash else (Fraction(1), True)
    if top is None or bottom is None or not bottom[0]:
        return None
    return top[0] / bottom[0], top[1] and bottom[1]


def same_answer(answer: str, gold: Sequence[str]) -> float:
    """1.0 when the answer is one of the gold answers, else 0.0."""
    return float(any(_same(answer, one) for one in gold))


def bared(text: str) -> str:
    """The text without what only wraps it: spaces, a full stop, `$…$`, `\\boxed{…}`."""
    bare = text.strip()
    while found := _WRAPPED.match(bare):
        bare = next(group for group in found.groups() if group is not None).strip()
    return bare[:-1] if bare.endswith(".") and not bare.endswith("..") else bare


def _same(answer: str, gold: str) -> bool:
    wanted = number(gold)
    if wanted is None:
        return _text(answer) == _text(gold)
    given = number(answer)
    if given is None:
        return False
    if wanted[1] and given[1]:
        return wanted[0] == given[0]
    return abs(given[0] - wanted[0]) <= abs(wanted[0]) * _TOLERANCE


def _decimal(text: str) -> tuple[Fraction, bool] | None:
    if not _PLAIN.match(text) or not any(c.isdigit() for c in text.lower().partition("e")[0]):
        return None
    exact = "." not in text and "e" not in text.lower()
    return Fraction(text.replace(",", "")), exact


def _text(text: str) -> str:
    return "".join(bared(text).split()).casefold()
