"""How well an answer fits: exact match and token F1 as in SQuAD, but numbers as numbers."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

_CJK_PUNCTUATION = "，。、；：？！“”‘’（）《》〈〉「」『』【】〔〕—…～·・"
_PUNCTUATION = string.punctuation + _CJK_PUNCTUATION
_DROPPED = str.maketrans("", "", _PUNCTUATION)
_NO_DIGITS = string.whitespace + "$£€¥%\"'!?"
"""What may stand around a number."""
_NUMBER_MARKS = "+-.,/"
_NO_NUMBER_MARKS = {ord(c): None for c in _PUNCTUATION + _NO_DIGITS if c not in _NUMBER_MARKS + " "}
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]|"
    r"[^\s\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]+"
)


def normal(text: str) -> str:
    """The text as answers are compared."""
    plain = unicodedata.normalize("NFC", text).lower().translate(_DROPPED)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(answer: str, gold: Sequence[str]) -> float:
    """1.0 when the answer is one of the gold answers, else 0.0.

    Punctuation counts in numbers only: 1.5 is not 15.
    """
    return float(any(_matches(answer, accepted) for accepted in gold))


def _matches(answer: str, gold: str) -> bool:
    numbers = _bare_number(answer), _bare_number(gold)
    if None in map(number, numbers):
        return normal(answer) == normal(gold)
    return _equal_answers(*numbers)


def _bare_number(text: str) -> str:
    """The text without what may stand around a number: `**-$5**;` is -5, not 5."""
    bare = text.strip(_NO_DIGITS)
    if number(bare) is None:
        bare = _ARTICLES.sub(" ", text.lower().translate(_NO_NUMBER_MARKS)).strip()
        bare = bare.rstrip(_NUMBER_MARKS).lstrip(",/")
    return bare


def token_f1(answer: str, gold: Sequence[str]) -> float:
    """The best F1, 0 to 1, between the answer's tokens and those of a gold answer."""
    return max((_f1(answer, accepted) for accepted in gold), default=0.0)


def _f1(answer: str, gold: str) -> float:
    answer_tokens, gold_tokens = _TOKEN.findall(normal(answer)), _TOKEN.findall(normal(gold))
    same = sum((Counter(answer_tokens) & Counter(gold_tokens)).values())
    return 2 * same / (len(answer_tokens) + len(gold_tokens)) if same else 0.0


_WRAPPED = re.compile(r"^\\boxed\{(.*)\}$|^\$(.*)\$$|^\\\((.*)\\\)$|^`(.*)`$", re.DOTALL)
_FRACTION = re.compile(r"^([+-]?)\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}$")
_PLAIN = re.compile(r"^[+-]?(\d{1,3}(,\d{3})+|\d+)?(\.\d*)?([eE][+-]?\d{1,3})?$")
_LONGEST = 100
"""Characters of a number; longer ones are compared as texts."""
_TOLERANCE = Fraction(1, 10**6)


def number(text: str) -> tuple[Fraction, bool] | None:
    """The number that a text is, and whether it is exact; None where it is none."""
    bare = unwrapped_number(text).replace("−", "-").replace(" ", "")
    if len(bare) > _LONGEST:
        return None
    if fraction := _FRACTION.match(bare):
        bare = f"{fraction[1]}{fraction[2]}/{fraction[3]}"
    above, slash, below = bare.partition("/")
    top, bottom = _decimal(above), _decimal(below) if slash else (Fraction(1), True)
    if top is None or bottom is None or not bottom[0]:
        return None
    return top[0] / bottom[0], top[1] and bottom[1]


def same_answer(answer: str, gold: Sequence[str]) -> float:
    """1.0 when the answer is one of the gold answers, else 0.0."""
    return float(any(_equal_answers(answer, accepted) for accepted in gold))


def unwrapped_number(text: str) -> str:
    """The text without what only wraps it: spaces, a full stop, `$…$`, `\\boxed{…}`."""
    bare = text.strip()
    while wrapped := _WRAPPED.match(bare):
        bare = next(group for group in wrapped.groups() if group is not None).strip()
    return bare[:-1] if bare.endswith(".") and not bare.endswith("..") else bare


def _equal_answers(answer: str, gold: str) -> bool:
    gold_number = number(gold)
    if gold_number is None:
        return _text(answer) == _text(gold)
    answer_number = number(answer)
    if answer_number is None:
        return False
    if gold_number[1] and answer_number[1]:
        return gold_number[0] == answer_number[0]
    return abs(answer_number[0] - gold_number[0]) <= abs(gold_number[0]) * _TOLERANCE


def _decimal(text: str) -> tuple[Fraction, bool] | None:
    if not _PLAIN.match(text) or not any(c.isdigit() for c in text.lower().partition("e")[0]):
        return None
    exact = "." not in text and "e" not in text.lower()
    return Fraction(text.replace(",", "")), exact


def _text(text: str) -> str:
    return "".join(unwrapped_number(text).split()).casefold()
