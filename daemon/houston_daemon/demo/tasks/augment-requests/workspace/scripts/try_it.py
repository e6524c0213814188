"""Train on augmented.jsonl and test on train.jsonl: `python3 scripts/try_it.py`.

The held-out requests are said in other words than these: make a harder test of your own.
"""

from pathlib import Path

import classifier

HERE = Path(__file__).parent.parent


def main() -> None:
    """Print how many rows and words there are, and the accuracy on the given requests."""
    rows = classifier.read(HERE / "augmented.jsonl")
    counts = classifier.train(rows)
    words = len(set().union(*counts.values()))
    given = classifier.accuracy(counts, classifier.read(HERE / "train.jsonl"))
    print(f"{len(rows)} rows, {words} words; accuracy on the given requests {given:.1f}")


if __name__ == "__main__":
    main()
