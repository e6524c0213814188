"""A solution: the thesaurus without what misleads, slips of the fingers, and even classes.

Run in a copy of the workspace: `python3 solve.py FOLDER`.
"""

import json
import random
import sys
from pathlib import Path

CHANCE = random.Random(5)
EACH = 120
"""Rows of one intent: the classifier has no priors, but counts."""


def slips(word: str) -> list[str]:
    """Ways to mistype a word."""
    found = []
    for at in range(1, max(1, len(word) - 2)):
        found += [
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        ]
    return found if len(word) > 3 else []


def main() -> None:
    """Write augmented.jsonl."""
    workspace = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    given = [json.loads(line) for line in (workspace / "train.jsonl").read_text().splitlines()]
    thesaurus = json.loads((workspace / "thesaurus.json").read_text())
    known = {word for row in given for word in row["text"].split()}
    # A synonym that the requests use already, in another meaning, is none.
    thesaurus = {
        word: [one for one in others if one not in known] for word, others in thesaurus.items()
    }
    rows = list(given)
    for intent in sorted({row["label"] for row in given}):
        mine = [row["text"] for row in given if row["label"] == intent]
        for number in range(EACH - len(mine)):
            words = []
            for word in mine[number % len(mine)].split():
                if word in thesaurus and CHANCE.random() < 0.75:
                    word = CHANCE.choice(thesaurus[word] or [word])
                if slips(word) and CHANCE.random() < 0.3:
                    word = CHANCE.choice(slips(word))
                words.append(word)
            rows.append({"text": " ".join(words), "label": intent})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (workspace / "augmented.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
