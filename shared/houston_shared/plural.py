"""Counts in words: `1 row`, `2,500 rows`."""


def many(count: int, what: str) -> str:
    """A count of things whose name takes an s."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
