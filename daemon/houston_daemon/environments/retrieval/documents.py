"""Documents of a corpus as they lie on disk: a folder of files, or a JSON Lines file.

Read one after the other and never all at once. What is no document is counted and left out.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from houston_daemon.environments.retrieval.html_text import read_html

SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm")
MOST_BYTES = 8_000_000
"""Most of one file, or of one line, that is read."""
_TITLE = 200


@dataclass(frozen=True, slots=True)
class Document:
    """One document."""

    id: str
    """Path in the folder, `id` of the line, or the line's number from 1."""
    title: str
    url: str
    text: str


def files(source: Path) -> Iterator[Path]:
    """The corpus's files in a fixed order; no link is followed, hidden names are left out.

    Raises OSError when it is not there or a folder may not be read.
    """
    if source.is_file():
        yield source
        return
    for folder, folders, names in os.walk(source, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or not name.lower().endswith(SUFFIXES):
                continue
            if not path.is_symlink() and path.is_file():
                yield path


def _unreadable(problem: OSError) -> NoReturn:
    raise problem


def documents(source: Path) -> Iterator[Document | None]:
    """Every document; None stands for a file or line that is none. Raises OSError."""
    if source.is_file():
        yield from _lines(source)
        return
    for path in files(source):
        yield _file(path, path.relative_to(source).as_posix())


def _file(path: Path, name: str) -> Document | None:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES)
    if b"\0" in data[:10_000]:
        return None  # binary under the name of a text
    text = data.decode("utf-8", "replace")
    title = ""
    if path.suffix.lower() in (".html", ".htm"):
        title, text = read_html(text)
    elif path.suffix.lower() in (".md", ".markdown"):
        title = next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), "")
    return _document(_name(name), title or _first_line(text), "", text)


def _name(name: str) -> str:
    """A file name as text: bytes that are no UTF-8 are shown as U+FFFD."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _lines(source: Path) -> Iterator[Document | None]:
    with source.open("rb") as file:
        number = 0
        while line := file.readline(MOST_BYTES):
            number += 1
            whole = line.endswith(b"\n") or len(line) < MOST_BYTES
            while not whole:  # the rest of a line that is too long
                rest = file.readline(MOST_BYTES)
                whole = rest.endswith(b"\n") or len(rest) < MOST_BYTES
                line = b"too long"
            if line.strip():
                yield _line(line, number)


def _line(line: bytes, number: int) -> Document | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    text, title = _text(found.get("text")), _text(found.get("title"))
    if not text and isinstance(found.get("contents"), str):
        # As the Wikipedia corpora of retrieval benchmarks have it: "title", newline, text.
        first, _, rest = _text(found["contents"]).partition("\n")
        title, text = (title or first.strip('" '), rest) if rest else (title, first)
    id = found.get("id", number)
    name = _text(id) if isinstance(id, str) else str(id) if isinstance(id, int) else ""
    return _document(name, title or _first_line(text), _text(found.get("url")), text)


def _document(id: str, title: str, url: str, text: str) -> Document | None:
    if not id or not text.strip():
        return None
    return Document(id[:300], " ".join(title.split())[:_TITLE], url[:2_000], text)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text[:2_000].splitlines() if line.strip()), "")


def _text(value: Any) -> str:
    """Text, without halves of surrogate pairs, which JSON can spell."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
