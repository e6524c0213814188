"""The title and the text of an HTML file of a corpus, in time linear in its length.

No part is looked at twice, whatever the markup: the standard library's parser takes hours for some
files of 8 MB and fails on others. Pages of the web go through the browser's own reader, which knows
more of their ways.
"""

import re
from html import unescape

_SILENT = frozenset({"script", "style", "noscript", "template", "svg"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption",
    "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p",
    "pre", "section", "table", "td", "th", "tr", "ul",
})  # fmt: skip
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]{0,40})")
_IN_TAG = re.compile(r"[>\"']")


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
                at = self._after("-->", opens + 4)
            elif tag:
                at = self._tag(tag[2].lower(), bool(tag[1]), self._end_of_tag(tag.end()))
            elif markup.startswith(("<!", "<?", "</"), opens):
                at = self._after(">", opens)
            else:
                self.parts.append("<")
                at = opens + 1
        self.parts.append(markup[at:])

    def _tag(self, name: str, closing: bool, at: int) -> int:
        """What a tag means; where to go on."""
        if name in _BLOCKS:
            self.parts.append("\n")
        if closing or name not in (*_SILENT, "title"):
            return at
        end = self._start_of(f"</{name}", at)
        if name == "title" and not self.title:
            self.title = self._markup[at : min(end, at + 2_000)]
        return end

    def _end_of_tag(self, at: int) -> int:
        """After the tag's `>`; one inside a quoted value is none."""
        while found := _IN_TAG.search(self._markup, at):
            at = found.end()
            if found[0] == ">":
                return at
            closes = self._find(found[0], at)
            at = closes + 1 if closes >= 0 else at
        return len(self._markup)

    def _after(self, text: str, at: int) -> int:
        found = self._find(text, at)
        return found + len(text) if found >= 0 else len(self._markup)

    def _find(self, text: str, at: int) -> int:
        if text in self._missing:
            return -1
        found = self._markup.find(text, at)
        if found < 0:
            self._missing.add(text)
        return found

    def _start_of(self, text: str, at: int) -> int:
        """Where `text` begins, in letters of any case; the end where it does not come."""
        found = None
        if text not in self._missing:
            found = re.compile(re.escape(text), re.IGNORECASE).search(self._markup, at)
        if found is None:
            self._missing.add(text)
            return len(self._markup)
        return found.start()
