"""The translator that is trained on your pairs; it is fixed, only the pairs are yours.

IBM Model 1 (Brown et al. 1993): how likely is an English word for a Vessi word, estimated by EM
from sentence pairs, from equal chances. A sentence is translated word by word with the likeliest
one; words that were never seen stay as they are.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path

ROUNDS = 8
MOST_PAIRS = 260
MOST_WORDS = 30
Pair = tuple[list[str], list[str]]


def read(file: Path) -> list[Pair]:
    """Pairs of a JSON Lines file, in lower case. Raises ValueError with a sentence."""
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            sides = [str(row[side]).lower().split() for side in ("vessi", "english")]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"line {number} is no object with `vessi` and `english`") from None
        if not all(sides) or max(map(len, sides)) > MOST_WORDS:
            raise ValueError(f"line {number} has an empty side, or more than {MOST_WORDS} words")
        found.append((sides[0], sides[1]))
    if not found or len(found) > MOST_PAIRS:
        raise ValueError(f"there are {len(found)} pairs; 1 to {MOST_PAIRS} are allowed")
    return found


def train(pairs: list[Pair]) -> dict[str, str]:
    """Vessi word → its likeliest English word."""
    chances: dict[str, dict[str, float]] = {}
    for vessi, english in pairs:
        for word in vessi:
            chances.setdefault(word, {}).update(dict.fromkeys(english, 1.0))
    for _ in range(ROUNDS):
        counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for vessi, english in pairs:
            for word in english:
                total = sum(chances[other][word] for other in vessi)
                for other in vessi:
                    counts[other][word] += chances[other][word] / total
        for other, found in counts.items():
            whole = sum(found.values())
            chances[other] = {word: count / whole for word, count in found.items()}
    return {other: min(found, key=lambda w: (-found[w], w)) for other, found in chances.items()}


def quality(lexicon: dict[str, str], pairs: list[Pair]) -> float:
    """Mean F1 of the translations' words against the English sides, 0 to 100; order is free."""
    scores = []
    for vessi, english in pairs:
        said = Counter(lexicon.get(word, word) for word in vessi)
        right = sum((said & Counter(english)).values())
        scores.append(200 * right / (len(vessi) + len(english)))
    return sum(scores) / len(scores)
