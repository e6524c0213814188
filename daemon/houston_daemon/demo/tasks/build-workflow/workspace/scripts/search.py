"""Search over the documents: those that share most words with the query, rare words first."""

import json
import math
import re
from collections import Counter
from pathlib import Path

CORPUS = Path(__file__).parent.parent / "corpus.jsonl"


class Search:
    """An index over corpus.jsonl."""

    def __init__(self, corpus: Path = CORPUS) -> None:
        rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
        self.texts: list[str] = [row["text"] for row in rows]
        self._words = [set(_words(row["text"])) for row in rows]
        self._often = Counter(word for words in self._words for word in words)

    def best(self, query: str, count: int = 3) -> list[str]:
        """Texts of the `count` best documents, the best first."""
        asked = set(_words(query))
        scores = [
            (sum(math.log(len(self.texts) / self._often[word]) for word in words & asked), -n)
            for n, words in enumerate(self._words)
        ]
        return [self.texts[-n] for _, n in sorted(scores, reverse=True)[:count]]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())
