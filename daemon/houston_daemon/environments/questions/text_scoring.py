"""How well an answer fits: exact match and token F1, as SQuAD defines them.

Normalisation, exact match and F1 are those of SQuAD 1.1's evaluate-v1.1.py (Rajpurkar et al. 2016,
§6.1): lower case, no ASCII punctuation, no English articles, single spaces; of several gold
answers the best counts. Letters with marks are the same however they are coded (NFC). Scripts
without spaces need two additions, which change nothing elsewhere: their punctuation goes too, and
F1 takes each of their characters for a token (as CMRC 2018 does, Cui et al. 2019).
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

_CJK_PUNCTUATION = "，。、；：？！“”‘’（）《》〈〉「」『』【】〔〕—…～·・"
_DROPPED = str.maketrans("", "", string.punctuation + _CJK_PUNCTUATION)
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
    """1.0 when the answer is one of the gold answers, else 0.0."""
    return float(any(normal(answer) == normal(one) for one in gold))


def token_f1(answer: str, gold: Sequence[str]) -> float:
    """The best F1, 0 to 1, between the answer's tokens and those of a gold answer."""
    return max((_f1(answer, one) for one in gold), default=0.0)


def _f1(answer: str, gold: str) -> float:
    given, wanted = _TOKEN.findall(normal(answer)), _TOKEN.findall(normal(gold))
    same = sum((Counter(given) & Counter(wanted)).values())
    return 2 * same / (len(given) + len(wanted)) if same else 0.0
