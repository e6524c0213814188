"""A document as numbered lines of a length that one can read and name."""

import textwrap

from houston_daemon.environments.retrieval.documents import Document
from houston_daemon.environments.search_qa.observations import DocumentWindow

_WIDTH = 200
"""A passage of a corpus is often one line; it is broken here, at a space where there is one."""
_LINES = 100


def lines(text: str) -> list[str]:
    """The text's lines, long ones broken; empty ones at the ends are left out."""
    found: list[str] = []
    for line in text.strip("\n").splitlines():
        broken = textwrap.wrap(line, _WIDTH, break_on_hyphens=False) if len(line) > _WIDTH else []
        found += broken or [line]
    return found


def window(document: Document, first: int, characters: int) -> DocumentWindow:
    """As many numbered lines from `first` as fit; the last ones when it lies beyond the end."""
    every = lines(document.text)
    first = min(first, max(1, len(every)))
    shown: list[str] = []
    size = 0
    for number, line in enumerate(every[first - 1 : first - 1 + _LINES], first):
        text = f"{number:>4} {line}"
        size += len(text) + 1
        if shown and size > characters:
            break
        shown.append(text)
    return DocumentWindow(
        id=document.id,
        title=document.title,
        first_line=first,
        last_line=first + len(shown) - 1,
        total_lines=len(every),
        content="\n".join(shown),
    )
