"""What was fetched as a page: numbered lines of text and a list of links.

HTML, PDF and office documents go through the converter of the parse family, in a process of its
own; text, JSON and Markdown are shown as they are; anything else is named and not shown.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from houston_daemon.environments.workstation.browse import decoding
from houston_daemon.environments.workstation.browse.fetch import Fetched
from houston_daemon.environments.workstation.parse.converter import (
    Converted,
    Converter,
    Kind,
    Unreadable,
)

LINE = 1_000
"""Characters of a line; the rest of a longer one goes on in the next."""
MOST_TEXT = 4_000_000
"""Characters of a page that are kept."""
_SECONDS = 60.0
_DOCUMENTS: dict[str, Kind] = {
    "application/pdf": "pdf",
    "application/x-pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "text/html": "html",
    "application/xhtml+xml": "html",
}
_TEXTS = ("json", "xml", "javascript", "ecmascript", "yaml", "toml", "x-sh", "x-tex", "sql", "csv")
_NO_LINKS: tuple[tuple[str, str], ...] = ()
_UNSAID = ("", "application/octet-stream", "binary/octet-stream", "application/x-download")
_PAGES = (b"<!doctype html", b"<html", b"<head", b"<body")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page as it is kept and shown."""

    url: str
    title: str
    lines: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """Text and address."""
    notes: tuple[str, ...]
    at: float
    """Unix time at which it was fetched."""


async def readable(fetched: Fetched, converter: Converter, staging: Path) -> Page:
    """The page in what was fetched. Raises Unreadable.

    staging: folder in which the converter's input lies for as long as it is at work.
    """
    kind = _kind(fetched)
    notes = list(_cut_notes(fetched))
    if kind == "binary":
        media = fetched.media or "of no known type"
        raise Unreadable(
            f"It is no text: {len(fetched.body)} bytes, {media}. A command can download it where "
            "the task allows a network."
        )
    if kind == "text":
        text, sound = await asyncio.to_thread(decoding.text, fetched.body, fetched.charset)
        title, links = "", _NO_LINKS
    else:
        found, sound = await _converted(kind, fetched, converter, staging)
        title, text, links = found.title, found.text, found.links
        notes += found.notes
    if not sound:
        notes.append("Some bytes fit no charset and are shown as \ufffd or wrongly.")
    lines, wrapped = await asyncio.to_thread(_lines, text)
    if kind == "html" and not lines:
        notes.append("It has no text of its own; scripts, which are not run, may write it.")
    if wrapped:
        notes.append(f"Lines longer than {LINE} characters go on in the next line.")
    if len(text) > MOST_TEXT:
        notes.append(f"Only the first {MOST_TEXT} of {len(text)} characters are kept.")
    return Page(
        url=fetched.url, title=title[:300], lines=lines, links=links, notes=tuple(notes),
        at=fetched.at,
    )  # fmt: skip


async def _converted(
    kind: Kind, fetched: Fetched, converter: Converter, staging: Path
) -> tuple[Converted, bool]:
    body, sound = fetched.body, True
    if kind == "html":
        text, sound = await asyncio.to_thread(decoding.text, body, fetched.charset)
        body = text.encode("utf-8", "replace")
    elif fetched.cut:
        raise Unreadable(f"The {kind.upper()} file did not arrive whole: {_why(fetched)}.")
    staging.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=staging) as made:
        folder = Path(made)
        file = folder / f"page.{kind}"
        await asyncio.to_thread(file.write_bytes, body)
        found = await converter.convert(
            kind, str(file), base=fetched.url, folder=folder, seconds=_SECONDS
        )
    return found, sound


def _kind(fetched: Fetched) -> Kind | Literal["text", "binary"]:
    """What kind of content it is: a converter's, `text` or `binary`."""
    head = fetched.body[:8_192].lstrip()
    if head.startswith(b"%PDF-"):
        return "pdf"
    if found := _DOCUMENTS.get(fetched.media):
        return found
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "binary"
    if fetched.media in _UNSAID or fetched.media == "text/plain":
        return "html" if fetched.media in _UNSAID and head.lower().startswith(_PAGES) else "text"
    named = fetched.media.startswith("text/") or any(one in fetched.media for one in _TEXTS)
    return "text" if named else "binary"


def _lines(text: str) -> tuple[tuple[str, ...], bool]:
    """A page's lines, none longer than LINE, and whether one had to be broken."""
    found: list[str] = []
    wrapped = False
    for line in text[:MOST_TEXT].replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        rest = line.rstrip()
        while len(rest) > LINE:
            wrapped = True
            at = rest.rfind(" ", LINE // 2, LINE)
            at = at + 1 if at > 0 else LINE
            found.append(rest[:at].rstrip())
            rest = rest[at:]
        found.append(rest)
    while found and not found[-1]:
        found.pop()
    return tuple(found), wrapped


def _cut_notes(fetched: Fetched) -> list[str]:
    return [f"The page is cut: {_why(fetched)}."] if fetched.cut else []


def _why(fetched: Fetched) -> str:
    what = f"after {len(fetched.body)} bytes"
    return (
        f"it is too large and was read up to the limit, {what}"
        if fetched.cut == "size"
        else (f"it did not end within the limit of time, {what}")
    )
