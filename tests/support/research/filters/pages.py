"""Which rows are kept: what people wrote, once."""

import re

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


def keep(rows: list[Row], config: dict[str, float]) -> list[Row]:
    """The rows to train on."""
    people = [row for row in rows if page_points(row[2], config["markup"]) < config["page"]]
    return without_copies(people, int(config["shingle"]), config["near"])
