"""Score answer.json: ten points for each of the ten places that is right."""

import json
import os
import re
from collections import Counter
from pathlib import Path


def expected(corpus: Path) -> list[tuple[str, int]]:
    """The ten most frequent words; equal counts in alphabetical order."""
    counts = Counter(re.findall(r"[a-z]+", corpus.read_text(encoding="utf-8").lower()))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:10]


def submitted(answer: Path) -> list[tuple[str, int]]:
    """The ten pairs of answer.json; none where there is no such file. Raises ValueError."""
    if not answer.is_file():
        return []
    try:
        given = json.loads(answer.read_text(encoding="utf-8"))
        return [(str(word).lower(), int(count)) for word, count in given][:10]
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise ValueError("answer.json must hold one JSON list of [word, count] pairs") from None


def main() -> None:
    """Print one JSON object: the score, and how many places and words are right."""
    right = expected(Path(__file__).parent / "workspace" / "corpus.txt")
    try:
        pairs = submitted(Path(os.environ["WORKSPACE"]) / "answer.json")
    except ValueError as problem:
        print(json.dumps({"overall_score": 0, "problem": str(problem)}))
        return
    places = sum(mine == theirs for mine, theirs in zip(pairs, right, strict=False))
    words = len({word for word, _ in pairs} & {word for word, _ in right})
    print(json.dumps({"overall_score": 10 * places, "places": places, "words": words}))


if __name__ == "__main__":
    main()
