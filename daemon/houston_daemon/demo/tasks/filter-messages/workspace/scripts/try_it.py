"""Train on selected.json and say what it looks like: `python3 scripts/try_it.py`.

The accuracy is that on all candidates with the labels that they have, many of them wrong.
"""

from collections import Counter
from pathlib import Path

import classifier

HERE = Path(__file__).parent.parent


def main() -> None:
    """Print the topics of the selection and the accuracy on the candidates."""
    rows = classifier.read(HERE / "candidates.jsonl")
    chosen = classifier.selection(HERE / "selected.json", len(rows))
    model = classifier.train([rows[one] for one in chosen])
    topics = Counter(rows[one]["label"] for one in chosen)
    print(f"{dict(topics)}; accuracy on all candidates {classifier.accuracy(model, rows):.1f}")


if __name__ == "__main__":
    main()
