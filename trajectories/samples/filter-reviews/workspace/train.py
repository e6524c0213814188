"""Filters the reviews, trains a logistic regression on words, reports accuracy on clean rows."""

import argparse
import json
import math
import sys
import time
from pathlib import Path

Row = tuple[str, str, str]
"""id, label, text."""


def rows_of(file: Path) -> list[Row]:
    """The rows of a file."""
    parts = (line.split("\t", 2) for line in file.read_text().splitlines())
    return [(one[0], one[1], one[2]) for one in parts]


def words(text: str) -> set[str]:
    """Words in lower case."""
    return set(text.lower().split())


def odds(weights: dict[str, float], text: str) -> float:
    """Log-odds that a text is positive."""
    return sum(weights.get(word, 0.0) for word in words(text))


def epoch(weights: dict[str, float], rows: list[Row], rate: float) -> float:
    """One pass of stochastic gradient descent; the mean loss."""
    loss = 0.0
    for _, label, text in rows:
        wanted = 1.0 if label == "pos" else 0.0
        found = 1 / (1 + math.exp(-odds(weights, text)))
        loss -= math.log(max(1e-9, found if wanted else 1 - found))
        for word in words(text):
            weights[word] = weights.get(word, 0.0) + rate * (wanted - found)
    return loss / max(1, len(rows))


def accuracy(weights: dict[str, float], rows: list[Row]) -> float:
    """Share of rows whose label is found."""
    right = sum((odds(weights, text) > 0) == (label == "pos") for _, label, text in rows)
    return right / len(rows)


def main() -> None:
    """Filter, train, report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--config", default="config.json")
    parser.add_argument("--epochs", type=int, default=6)
    given = parser.parse_args()
    log = Path("runs") / f"{given.name}.log"
    log.parent.mkdir(exist_ok=True)
    if log.exists():
        sys.stdout.write(f"{log} exists. Overwrite it? [y/n] ")
        sys.stdout.flush()
        if input().strip() != "y":
            sys.exit("stopped: nothing was overwritten")
    config = json.loads(Path(given.config).read_text()) if Path(given.config).exists() else {}
    rows = kept = rows_of(Path("data/reviews.tsv"))
    if Path("filter.py").exists():
        from filter import keep  # the agent's own

        kept = keep(rows, config)
    Path("kept.txt").write_text("".join(f"{row[0]}\n" for row in kept))
    dev, weights = rows_of(Path("data/dev.tsv")), {}
    with log.open("w", buffering=1) as file:

        def say(line: str) -> None:
            sys.stdout.write(line + "\n")
            file.write(line + "\n")

        for number in range(1, given.epochs + 1):
            loss = epoch(weights, kept, 0.3 / number)
            say(f"epoch {number} loss {loss:.4f} dev {accuracy(weights, dev):.3f}")
            time.sleep(0.01)
        say(f"done kept {len(kept)} of {len(rows)} dev_accuracy {accuracy(weights, dev):.3f}")


if __name__ == "__main__":
    main()
