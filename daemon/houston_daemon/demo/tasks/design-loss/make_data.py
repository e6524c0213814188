"""Write the data of this task again: `python3 make_data.py` gives the same bytes every time.

One of nine is positive; a third of the positives to train on are called negative, and some
negatives far out are called positive. The held-out labels are right.
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
CHANCE = random.Random(57)
DIRECTION = (0.9, -0.7, 0.5, 0.3, 0.0, 0.0)


def example(label: int) -> list[float]:
    """Six features; the classes overlap."""
    side = 1.1 if label else -0.5
    return [round(side * part + CHANCE.gauss(0, 1), 4) for part in DIRECTION]


def outlier() -> list[float]:
    """A negative, far on the wrong side of a line across the classes."""
    return [round(-3.5 * part + CHANCE.gauss(0, 0.6), 4) for part in DIRECTION]


def lines(file: Path, rows: list[tuple[list[float], int]]) -> None:
    """Examples as JSON Lines."""
    text = "".join(json.dumps({"x": x, "y": y}) + "\n" for x, y in rows)
    file.write_text(text, encoding="utf-8")


def main() -> None:
    """What is trained on into the workspace, the test beside it."""
    rows = []
    for number in range(600):
        label = int(number % 9 == 0)
        told = 0 if label and CHANCE.random() < 0.33 else label
        rows.append((example(label), told))
    rows += [(outlier(), 1) for _ in range(14)]
    CHANCE.shuffle(rows)
    lines(HERE / "workspace" / "train.jsonl", rows)
    lines(HERE / "held_out" / "test.jsonl", [(example(n % 2), n % 2) for n in range(600)])
    (HERE / "workspace" / "loss.txt").write_text("-log(p) if y == 1 else -log(1 - p)\n")


if __name__ == "__main__":
    main()
