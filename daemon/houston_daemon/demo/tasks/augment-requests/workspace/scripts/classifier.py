"""The classifier that is trained on your rows; it is fixed, only the rows are yours.

Multinomial naive Bayes with add-one smoothing over the words of a request. Each row counts once,
so what stands in many rows weighs more.
"""

import json
import math
from collections import Counter
from pathlib import Path

MOST_ROWS = 600
MOST_WORDS = 20
INTENTS = ("book", "cancel", "hours", "menu", "complain")
Row = tuple[str, str]


def read(file: Path) -> list[Row]:
    """Texts and labels of a JSON Lines file. Raises ValueError with a sentence."""
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            text, label = str(row["text"]).lower(), row["label"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"line {number} is no object with `text` and `label`") from None
        if label not in INTENTS:
            raise ValueError(f"line {number} has a label that is none of {', '.join(INTENTS)}")
        if not 1 <= len(text.split()) <= MOST_WORDS:
            raise ValueError(f"line {number} has no text, or more than {MOST_WORDS} words")
        found.append((text, label))
    if not found or len(found) > MOST_ROWS:
        raise ValueError(f"there are {len(found)} rows; 1 to {MOST_ROWS} are allowed")
    return found


def train(rows: list[Row]) -> dict[str, Counter[str]]:
    """Counts of words by intent."""
    counts: dict[str, Counter[str]] = {intent: Counter() for intent in INTENTS}
    for text, label in rows:
        counts[label].update(text.split())
    return counts


def accuracy(counts: dict[str, Counter[str]], rows: list[Row]) -> float:
    """Share of rows whose intent is found, 0 to 100."""
    vocabulary = len(set().union(*counts.values()))
    whole = {intent: math.log(found.total() + vocabulary) for intent, found in counts.items()}
    right = 0
    for text, label in rows:
        scores = {
            intent: sum(math.log(found[word] + 1) - whole[intent] for word in text.split())
            for intent, found in counts.items()
        }
        right += max(INTENTS, key=lambda intent: scores[intent]) == label
    return 100 * right / len(rows)
