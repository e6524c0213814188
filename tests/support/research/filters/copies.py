"""Which rows are kept: the first of each set of copies."""

Row = tuple[str, str, str]


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


def keep(rows: list[Row], config: dict[str, float]) -> list[Row]:
    """The rows to train on."""
    return without_copies(rows, int(config["shingle"]), config["near"])
