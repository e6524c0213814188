"""The title and the text of an HTML file, by the standard library; for files of a corpus.

Pages of the web go through the browser's own reader, which knows more of their ways.
"""

from html.parser import HTMLParser

_SILENT = frozenset({"script", "style", "noscript", "template", "svg"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption",
    "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p",
    "pre", "section", "table", "td", "th", "tr", "ul",
})  # fmt: skip


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.parts: list[str] = []
        self._silent = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title" or self._in_title
        self._silent += tag in _SILENT
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._in_title = tag != "title" and self._in_title
        self._silent = max(0, self._silent - (tag in _SILENT))
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._silent:
            self.parts.append(data)


def read_html(markup: str) -> tuple[str, str]:
    """Title (may be empty) and text, a line for each block."""
    reader = _Reader()
    reader.feed(markup)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.parts).splitlines())
    return " ".join(reader.title.split()), "\n".join(line for line in lines if line)
