"""A solution: no repetitions, no labels that the others contradict, then as many words as possible.

Run in a copy of the workspace: `python3 solve.py FOLDER`.
"""

import json
import sys
from collections import Counter
from pathlib import Path


def main() -> None:
    """Write selected.json."""
    workspace = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    sys.path.insert(0, str(workspace / "scripts"))
    import classifier

    rows = classifier.read(workspace / "candidates.jsonl")
    often = Counter(word for row in rows for word in set(row["text"].split()))
    rare = {word for word, count in often.items() if count < 110}

    def telling(row: dict[str, str]) -> frozenset[str]:
        return frozenset(row["text"].split()) & rare

    # Repetitions share three telling words or more with another that was taken.
    single = []
    for row in rows:
        words = telling(row)
        if words and not any(len(words & telling(other)) > 2 for other in single):
            single.append(row)
    # Labels that a model of all the others, however noisy, finds by far the likeliest.
    model = classifier.train(single)
    sure = []
    for row in single:
        model.words[row["label"]].subtract(row["text"].split())
        found = classifier.scores(model, " ".join(sorted(telling(row))))
        model.words[row["label"]].update(row["text"].split())
        best = max(found, key=lambda topic: found[topic])
        others = [score for topic, score in found.items() if topic != best]
        if best == row["label"]:
            sure.append((found[best] - max(others), row))
    sure.sort(key=lambda pair: -pair[0])
    chosen: list[int] = []
    for topic in classifier.TOPICS:
        seen: Counter[str] = Counter()
        mine = [row for _, row in sure if row["label"] == topic][:90]
        for _ in range(classifier.SIZE // len(classifier.TOPICS)):
            best = max(mine, key=lambda row: sum(1 / (1 + seen[w]) ** 2 for w in telling(row)))
            mine.remove(best)
            seen.update(telling(best))
            chosen.append(best["id"])
    (workspace / "selected.json").write_text(json.dumps(chosen) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
