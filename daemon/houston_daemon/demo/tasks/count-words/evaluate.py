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


def main() -> None:
    """Print one JSON object: the score, and how many places and words are right."""
    workspace = Path(os.environ["WORKSPACE"])
    right = expected(Path(__file__).parent / "workspace" / "corpus.txt")
    answer = workspace / "answer.json"
    given = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else []
    if not isinstance(given, list) or not all(isinstance(pair, list) for pair in given):
        raise SystemExit("answer.json must hold one JSON list of [word, count] pairs")
    pairs = [(str(pair[0]).lower(), int(pair[1])) for pair in given][:10]
    places = sum(mine == theirs for mine, theirs in zip(pairs, right, strict=False))
    words = len({word for word, _ in pairs} & {word for word, _ in right})
    print(json.dumps({"overall_score": 10 * places, "places": places, "words": words}))


if __name__ == "__main__":
    main()
