"""Documents of a corpus on disk: a folder of text and HTML files, or a JSON Lines file."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, NoReturn

_SILENT = frozenset({"script", "style", "noscript", "template", "svg"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption",
    "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p",
    "pre", "section", "table", "td", "th", "tr", "ul",
})  # fmt: skip
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]{0,40})")
_IN_TAG = re.compile(r"=\s*([\"'])|>")
"""Elsewhere a quotation mark is a slip of the pen, as browsers take it."""


def read_html(markup: str) -> tuple[str, str]:
    """Title (may be empty) and text, a line for each block."""
    reader = _Reader(markup)
    reader.read()
    lines = (" ".join(line.split()) for line in unescape("".join(reader.parts)).splitlines())
    return " ".join(unescape(reader.title).split()), "\n".join(line for line in lines if line)


class _Reader:
    def __init__(self, markup: str) -> None:
        self.title = ""
        self.parts: list[str] = []
        self._markup = markup
        self._missing: set[str] = set()
        """What does not come again: looked for once, and never from further on."""

    def read(self) -> None:
        """Fill `title` and `parts`."""
        markup, at = self._markup, 0
        while (opens := markup.find("<", at)) >= 0:
            self.parts.append(markup[at:opens])
            tag = _TAG.match(markup, opens)
            if markup.startswith("<!--", opens):
                at = self._index_after("-->", opens + 2)  # `<!-->` is one
            elif tag:
                at = self._tag(tag[2].lower(), bool(tag[1]), self._end_of_tag(tag.end()))
            elif markup.startswith(("<!", "<?", "</"), opens):
                at = self._index_after(">", opens)
            else:
                self.parts.append("<")
                at = opens + 1
        self.parts.append(markup[at:])

    def _tag(self, name: str, closing: bool, at: int) -> int:
        """What a tag means; where to go on."""
        if name in _BLOCKS:
            self.parts.append("\n")
        closed = closing or self._markup.startswith("/>", at - 2)
        if closed or name not in (*_SILENT, "title"):
            return at
        end = self._start_of(f"</{name}", at)
        if name == "title" and not self.title:
            self.title = self._markup[at : min(end, at + 2_000)]
        return end

    def _end_of_tag(self, at: int) -> int:
        """After the tag's `>`; one inside a quoted value is none."""
        while mark := _IN_TAG.search(self._markup, at):
            at = mark.end()
            if mark[0] == ">":
                return at
            closes = self._find(mark[1], at)
            at = closes + 1 if closes >= 0 else at
        return len(self._markup)

    def _index_after(self, text: str, at: int) -> int:
        place = self._find(text, at)
        return place + len(text) if place >= 0 else len(self._markup)

    def _find(self, text: str, at: int) -> int:
        if text in self._missing:
            return -1
        place = self._markup.find(text, at)
        if place < 0:
            self._missing.add(text)
        return place

    def _start_of(self, text: str, at: int) -> int:
        """Where `text` begins, in letters of any case; the end where it does not come."""
        match = None
        if text not in self._missing:
            match = re.compile(re.escape(text), re.IGNORECASE).search(self._markup, at)
        if match is None:
            self._missing.add(text)
            return len(self._markup)
        return match.start()


SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm")
MAX_DOCUMENT_BYTES = 8_000_000
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
        data = file.read(MAX_DOCUMENT_BYTES)
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
        while line := file.readline(MAX_DOCUMENT_BYTES):
            number += 1
            complete = line.endswith(b"\n") or len(line) < MAX_DOCUMENT_BYTES
            while not complete:  # the rest of a line that is too long
                rest = file.readline(MAX_DOCUMENT_BYTES)
                complete = rest.endswith(b"\n") or len(rest) < MAX_DOCUMENT_BYTES
                line = b"too long"
            if line.strip():
                yield _line(line, number)


def _line(line: bytes, number: int) -> Document | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    text, title = _text(entry.get("text")), _text(entry.get("title"))
    if not text and isinstance(entry.get("contents"), str):
        # As the Wikipedia corpora of retrieval benchmarks have it: "title", newline, text.
        first, _, rest = _text(entry["contents"]).partition("\n")
        title, text = (title or first.strip('" '), rest) if rest else (title, first)
    id = entry.get("id", number)
    name = _text(id) if isinstance(id, str) else str(id) if isinstance(id, int) else ""
    return _document(name, title or _first_line(text), _text(entry.get("url")), text)


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
