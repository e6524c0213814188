"""Which rows are kept: what people wrote, once, with a label that the other rows do not contradict.

Labels are judged by naive Bayes over folds, so that no row is judged by a model that has seen it.
"""

import math
import re
from collections import Counter

Row = tuple[str, str, str]
PHRASES = ("click here", "all rights reserved", "accept cookies", "sign up", "next page")
MARKUP = re.compile(r"<[^>]*>|&\w+;")


def shingles(text: str, k: int) -> set[tuple[str, ...]]:
    """All runs of k words, in lower case."""
    words = text.lower().split()
    return {tuple(words[at : at + k]) for at in range(max(1, len(words) - k + 1))}


def similar(one: set[tuple[str, ...]], other: set[tuple[str, ...]], near: float) -> bool:
    """Whether the Jaccard similarity of two sets is at least `near`."""
    shared = len(one & other)
    return shared > 0 and shared >= near * (len(one) + len(other) - shared)


def without_copies(rows: list[Row], k: int, near: float) -> list[Row]:
    """The first of each set of near copies: Jaccard similarity of their shingles from `near` on."""
    kept: list[Row] = []
    seen: list[set[tuple[str, ...]]] = []
    for row in rows:
        own = shingles(row[2], k)
        if not any(similar(own, other, near) for other in seen):
            kept.append(row)
            seen.append(own)
    return kept


def page_points(text: str, markup: float) -> float:
    """Evidence that a text is a part of a page: stock phrases, and markup with a weight."""
    lower = text.lower()
    return sum(phrase in lower for phrase in PHRASES) + markup * bool(MARKUP.search(text))


def counts(rows: list[Row]) -> dict[str, Counter[str]]:
    """How often each word stands in rows of each label."""
    found: dict[str, Counter[str]] = {"pos": Counter(), "neg": Counter()}
    for _, label, text in rows:
        found[label].update(set(text.lower().split()))
    return found


def against(row: Row, found: dict[str, Counter[str]], smooth: float) -> float:
    """Log-odds against the label of a row."""
    own, other = found[row[1]], found["neg" if row[1] == "pos" else "pos"]
    return sum(
        math.log((other[word] + smooth) / (own[word] + smooth))
        for word in set(row[2].lower().split())
    )


def keep(rows: list[Row], config: dict[str, float]) -> list[Row]:
    """The rows to train on."""
    people = [row for row in rows if page_points(row[2], config["markup"]) < config["page"]]
    once = without_copies(people, int(config["shingle"]), config["near"])
    folds = int(config["folds"])
    kept = []
    for fold in range(folds):
        judge = counts([row for at, row in enumerate(once) if at % folds != fold])
        unseen = [row for at, row in enumerate(once) if at % folds == fold]
        kept += [row for row in unseen if against(row, judge, config["smooth"]) < config["margin"]]
    return kept
