"""How many words a person said: what attention cost, besides time.

Words are runs of letters and digits, with apostrophes and hyphens inside. Scripts that put no space
between words (Chinese characters, kana) are counted by character; Korean puts spaces, as Latin.
"""

import re

_BY_CHARACTER = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_WORD = rf"[{_BY_CHARACTER}]|(?:(?![{_BY_CHARACTER}])\w)+(?:['’-]\w+)*"


def words(text: str) -> int:
    """Number of words; a Chinese or Japanese character counts as one."""
    return sum(1 for _ in re.finditer(_WORD, text))
