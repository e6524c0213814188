"""Words are counted as who wrote them would."""

import pytest

from houston_shared.times_and_counts import count_words

TEXTS = {
    "Read the file first.": 4,
    "don't re-run eval.py": 4,
    "": 0,
    "… — !": 0,
    "先看看数据": 5,
    "用 GPU 训练，don't wait": 6,
    "テスト": 3,
    "한국어 단어": 2,
    "naïve café über": 3,
    "x=3.5": 3,
    "👍 ok": 1,
}


@pytest.mark.parametrize("text", TEXTS)
def test_words(text: str) -> None:
    assert count_words(text) == TEXTS[text]
