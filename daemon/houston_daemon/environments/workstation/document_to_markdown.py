"""Turns one file into Markdown, as a separate program, because the file comes from outside.

    python document_to_markdown.py KIND FILE [BASE_URL] [--closed] [--packages=FOLDER]…

KIND is html, pdf, docx, pptx or latex. Prints one JSON object: `title`, `text`, `links` (pairs of
text and address), `notes`; or `error`, one sentence. It limits its own memory and processor time,
imports nothing of Houston, and knows neither workspace nor agent.
"""

import json
import re
import resource
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

MEMORY = 2 << 30
"""Most address space, bytes; a file that needs more is refused."""
MAX_TEXT_CHARACTERS = 4_000_000
"""Characters of Markdown that are kept; the notes say when there are more."""
MAX_LISTED_LINKS = 5_000
_HEAP = "-M1500m"
_STACK = 256 << 20
_DEPTH = 20_000
"""Nested elements of a page that are followed; deeper ones give plain text."""
_PLAIN = "The page is very large or deep: its plain text is shown."
_LARGE_PAGE = 3_000_000
"""Characters of HTML beyond which only its text is taken: Markdown of it takes too long."""
_PDF_SECONDS = 45.0
"""A longer document is converted as far as this."""
_NO_TITLE = ("(anonymous)", "untitled", "unknown")
_INVISIBLE = ("script", "style", "noscript", "template", "svg", "iframe", "object", "head")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_MARKDOWN = (
    "markdown+pipe_tables-simple_tables-multiline_tables-grid_tables-header_attributes"
    "-link_attributes-fenced_divs-bracketed_spans-raw_attribute-smart-native_divs-native_spans"
)
_WARNING = re.compile(r"^\[WARNING\] (.+(?:\n  .+)*)", re.MULTILINE)
_HEAP_FULL = 251
_SLIDE = re.compile(r"ppt/slides/_rels/slide(\d{1,5})\.xml\.rels")
_NOTES = re.compile(rb'Target="(?:\.\./|/ppt/)(notesSlides/notesSlide\d{1,5}\.xml)"')
_MAX_PART_BYTES = 4_000_000


class Unreadable(Exception):
    """The file cannot be converted; the text says why."""


def convert(kind: str, file: Path, base: str = "") -> dict[str, Any]:
    """The file as Markdown. Raises Unreadable."""
    if kind == "html":
        return _html(file.read_text("utf-8", "replace"), base)
    return _pdf(file) if kind == "pdf" else _office(kind, file)


def _pdf(file: Path) -> dict[str, Any]:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as problem:
        locked = "password" in str(problem).lower()
        reason = "it is locked by a password" if locked else "it is damaged or no PDF"
        raise Unreadable(f"The PDF cannot be read: {reason}.") from None
    start_time, pages, empty, size = time.monotonic(), [], 0, 0
    total = len(document)
    for number in range(total):
        if time.monotonic() - start_time > _PDF_SECONDS or size > MAX_TEXT_CHARACTERS:
            break
        text = _page_text(document, number)
        empty += not text
        size += len(text)
        pages.append(f"## Page {number + 1}\n\n{text}")
    notes = [f"{total} page{'s' * (total != 1)}."]
    if len(pages) < total:
        notes.append(f"Only pages 1 to {len(pages)} were converted: the document is too long.")
    if empty:
        notes.append(f"{empty} of them hold no text; they may be scanned pictures.")
    title = str(document.get_metadata_dict().get("Title", "")).strip()
    title = "" if title.lower() in _NO_TITLE else title
    head = [f"# {title}"] if title else []
    return {"title": title, "text": "\n\n".join([*head, *pages]), "links": [], "notes": notes}


def _page_text(document: Any, number: int) -> str:
    import pypdfium2

    try:
        text: str = document[number].get_textpage().get_text_bounded()
    except pypdfium2.PdfiumError:
        return "(This page is damaged.)"
    # A soft hyphen at a line's end is U+FFFE or U+0002 in PDFium: the word goes on.
    text = re.sub("[\ufffe\x02]\r?\n", "", text.replace("\r\n", "\n"))
    return text.replace("\ufffe", "-").strip()


def _office(kind: str, file: Path) -> dict[str, Any]:
    import pypandoc

    command = [str(pypandoc.get_pandoc_path()), "+RTS", _HEAP, "-RTS", "--from", kind]
    command += ["--to", _MARKDOWN, "--standalone", "--wrap=none", "--track-changes=accept"]
    if "--closed" in sys.argv:  # nothing but the file itself, where no sandbox is around it
        command.append("--sandbox")
    process = subprocess.run([*command, "--", str(file)], capture_output=True, check=False)
    stderr = process.stderr.decode("utf-8", "replace")
    if process.returncode == _HEAP_FULL:
        raise MemoryError
    if process.returncode:
        reason = " ".join(stderr.split())[:300] or "no reason was given"
        raise Unreadable(f"The file cannot be read as {kind.upper()}: {reason}")
    notes = [" ".join(warning.split())[:200] for warning in _WARNING.findall(stderr)][:5]
    text = process.stdout.decode("utf-8", "replace")
    if kind == "pptx":
        try:
            text += _speaker_notes(file)
        except (zipfile.BadZipFile, KeyError, SyntaxError):  # lxml's errors are SyntaxErrors
            notes.append("The speaker notes cannot be read.")
    return {"title": "", "text": text, "links": [], "notes": notes}


def _speaker_notes(file: Path) -> str:
    """What stands under the slides of a PPTX, which pandoc leaves out; by slide, as a chapter.

    Raises BadZipFile, KeyError and XMLSyntaxError for an archive that pandoc could read in part.
    """
    texts: dict[int, str] = {}
    with zipfile.ZipFile(file) as deck:
        for name in deck.namelist():
            slide = _SLIDE.fullmatch(name)
            target = _NOTES.search(_part(deck, name)) if slide else None
            if slide and target:
                text = _under_slide(_part(deck, f"ppt/{target.group(1).decode()}"))
                texts[int(slide.group(1))] = text
    parts = [f"### Slide {number}\n\n{text}\n" for number, text in sorted(texts.items()) if text]
    return "\n## Speaker notes\n\n" + "\n".join(parts) if parts else ""


def _part(deck: zipfile.ZipFile, name: str) -> bytes:
    with deck.open(name) as part:
        return part.read(_MAX_PART_BYTES)


def _under_slide(data: bytes) -> str:
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    # Placeholders other than the body hold the slide's number and its picture.
    body = "//*[local-name()='sp'][.//*[local-name()='ph'][@type='body']]//*[local-name()='p']"
    lines = etree.fromstring(data, parser).xpath(body)
    texts = ("".join(line.itertext("{*}t")).strip() for line in lines)
    return "\n".join(text for text in texts if text)


def _html(source: str, base: str) -> dict[str, Any]:
    if len(source) > _LARGE_PAGE:
        return _plain(source, base)
    import bs4

    soup = bs4.BeautifulSoup(source, "lxml")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    own = soup.find("base", href=True)
    links = Links(_resolve_base(base, str(own["href"])) if own else base)
    for element in [*soup.find_all(_INVISIBLE), *soup.find_all(_is_hidden)]:
        element.extract()
    try:
        text = _converter(links).convert_soup(soup)
    except (RecursionError, ValueError):  # too deep, or `<ol start=999…>` beyond any number
        links = Links(links.base)
        for element in soup.find_all("a", href=True):
            links.number(str(element["href"]), element.get_text(" "))
        return _page(title, "\n".join(soup.stripped_strings), links, [_PLAIN])
    return _page(title, re.sub(r"[ \t]+\n", "\n", text), links, [])


def _plain(source: str, base: str) -> dict[str, Any]:
    """A page too large for Markdown: its texts, a line each."""
    from lxml import etree, html

    try:
        root = html.document_fromstring(source, parser=html.HTMLParser(huge_tree=True))
    except etree.ParserError:  # nothing but spaces or comments
        return _page("", "", Links(base), [])
    title = " ".join((root.findtext(".//title") or "").split())
    own = root.find(".//base[@href]")
    links = Links(_resolve_base(base, own.get("href")) if own is not None else base)
    hidden = [node for node in root.iter(etree.Element) if _is_hidden_in(node)]
    for element in hidden:
        if element.getparent() is not None:
            element.drop_tree()
    for element in root.iter("a"):
        links.number(element.get("href") or "", "".join(element.itertext()))
    lines = (" ".join(piece.split()) for piece in root.itertext())
    return _page(title, "\n".join(line for line in lines if line), links, [_PLAIN])


def _resolve_base(base: str, own: str) -> str:
    """Where a page says that its links start from; its own address where that is none."""
    try:
        return urljoin(base, own)
    except ValueError:
        return base


def _page(title: str, text: str, links: "Links", notes: list[str]) -> dict[str, Any]:
    if links.left_out:
        notes.append(f"{links.left_out} more links are not listed.")
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    return {"title": title, "text": text, "links": links.found, "notes": notes}


def _is_hidden_in(element: Any) -> bool:
    style = element.get("style") or ""
    return element.tag in _INVISIBLE or "hidden" in element.attrib or bool(_HIDDEN.search(style))


def _is_hidden(element: Any) -> bool:
    """What a browser does not show must not speak to an agent either."""
    return element.has_attr("hidden") or bool(_HIDDEN.search(str(element.get("style") or "")))


class Links:
    """The links of a page in order, numbered from 1; the same address has one number."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._numbers: dict[str, int] = {}
        self.found: list[tuple[str, str]] = []
        self.left_out = 0

    def number(self, target: str, text: str) -> int | None:
        """The number of a link; None for what leads nowhere else."""
        try:
            address = urljoin(self.base, target.strip())
        except ValueError:
            return None
        same_page = urldefrag(address).url == urldefrag(self.base).url
        if same_page or not address.startswith(("http://", "https://")):
            return None
        if address not in self._numbers:
            if len(self.found) >= MAX_LISTED_LINKS:
                self.left_out += 1
                return None
            self.found.append((" ".join(text.split())[:200], address[:2_000]))
            self._numbers[address] = len(self.found)
        return self._numbers[address]


def _converter(links: Links) -> Any:
    import markdownify

    class Page(markdownify.MarkdownConverter):
        """Links are numbers behind their text: addresses would be most of many a page."""

        def convert_a(self, element: Any, text: str, parent_tags: Any) -> str:
            number = links.number(str(element.get("href", "")), text)
            return (
                text if number is None else f"{text}[{number}]" if text.strip() else f"[{number}]"
            )

        def convert_img(self, element: Any, text: str, parent_tags: Any) -> str:
            words = " ".join(str(element.get("alt", "")).split())
            return f"(image: {words[:200]})" if words else ""

    return Page(
        heading_style="ATX",
        bullets="-",
        escape_asterisks=False,
        escape_underscores=False,
        table_infer_header=True,
    )


def _limit(seconds: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    least = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (least, most))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _conversion_result(arguments: list[str]) -> dict[str, Any]:
    try:
        page = convert(arguments[0], Path(arguments[1]), "".join(arguments[2:3]))
    except Unreadable as problem:
        return {"error": str(problem)}
    except MemoryError:
        return {"error": f"The file needs more than {MEMORY >> 30} GB of memory to be converted."}
    except OSError as problem:
        return {"error": f"The file cannot be read: {problem.strerror}."}
    text = page["text"]
    if len(text) > MAX_TEXT_CHARACTERS:
        page["text"] = text[:MAX_TEXT_CHARACTERS]
        page["notes"].append(
            f"Only the first {MAX_TEXT_CHARACTERS} of {len(text)} characters are kept."
        )
    return page


def main() -> None:
    """Convert what the command line names, on a stack that deep documents do not exhaust."""
    _limit(120)
    sys.setrecursionlimit(_DEPTH)
    threading.stack_size(_STACK)
    arguments = [word for word in sys.argv[1:] if not word.startswith("--")]
    sys.path += [word.partition("=")[2] for word in sys.argv if word.startswith("--packages=")]
    answers: list[dict[str, Any]] = []
    worker = threading.Thread(target=lambda: answers.append(_conversion_result(arguments)))
    worker.start()
    worker.join()
    if not answers:  # an exception: its traceback is on stderr
        sys.exit(1)
    sys.stdout.buffer.write(json.dumps(answers[0], ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
