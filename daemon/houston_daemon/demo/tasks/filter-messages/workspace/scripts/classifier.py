"""The classifier that is trained on your selection; it is fixed, only the selection is yours.

Multinomial naive Bayes over words, with add-one smoothing.
"""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

SIZE = 80
"""Examples that a selection has, no more and no fewer."""
TOPICS = ("weather", "kitchen", "travel", "garden")


class Model(NamedTuple):
    """Counts of words by topic."""

    words: dict[str, Counter[str]]
    topics: Counter[str]
    vocabulary: int


def read(file: Path) -> list[dict[str, Any]]:
    """Rows of a JSON Lines file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def selection(file: Path, candidates: int) -> list[int]:
    """The ids of a selection. Raises ValueError with a sentence."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise ValueError("it is no list of whole numbers")
    if len(set(found)) != SIZE or len(found) != SIZE:
        raise ValueError(f"it names {len(set(found))} different ids; exactly {SIZE} are wanted")
    if not all(0 <= one < candidates for one in found):
        raise ValueError(f"an id is not between 0 and {candidates - 1}")
    return found


def train(rows: list[dict[str, Any]]) -> Model:
    """Count words and topics."""
    words: dict[str, Counter[str]] = {topic: Counter() for topic in TOPICS}
    topics = Counter(dict.fromkeys(TOPICS, 1))
    for row in rows:
        words[row["label"]].update(row["text"].split())
        topics[row["label"]] += 1
    return Model(words, topics, len(set().union(*words.values())) or 1)


def scores(model: Model, text: str) -> dict[str, float]:
    """Log-probability of each topic, up to a constant."""
    found = {}
    for topic, counts in model.words.items():
        whole = counts.total() + model.vocabulary
        found[topic] = math.log(model.topics[topic]) + sum(
            math.log((counts[word] + 1) / whole) for word in text.split()
        )
    return found


def accuracy(model: Model, rows: list[dict[str, Any]]) -> float:
    """Share of rows whose topic is found, 0 to 100."""
    right = 0
    for row in rows:
        found = scores(model, row["text"])
        right += max(TOPICS, key=lambda topic: found[topic]) == row["label"]
    return 100 * right / len(rows)
