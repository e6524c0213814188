"""What was fetched as a page, numbered lines and links; and the cache that rollouts share."""

import asyncio
import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Literal

import msgspec
import zstandard

from houston_daemon.environments.workstation import web_fetch
from houston_daemon.environments.workstation.document_converter import (
    Converted,
    Converter,
    Kind,
    Unreadable,
)
from houston_daemon.environments.workstation.web_fetch import Fetched
from houston_shared import atomic_file

LINE = 1_000
"""Characters of a line; the rest of a longer one goes on in the next."""
MAX_TEXT_CHARACTERS = 4_000_000
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


async def readable_page(fetched: Fetched, converter: Converter, staging: Path) -> Page:
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
        text, sound = await asyncio.to_thread(web_fetch.decoded_text, fetched.body, fetched.charset)
        title, links = "", _NO_LINKS
    else:
        converted, sound = await _convert(kind, fetched, converter, staging)
        title, text, links = converted.title, converted.text, converted.links
        notes += converted.notes
    if not sound:
        notes.append("Some bytes fit no charset and are shown as \ufffd or wrongly.")
    lines, wrapped = await asyncio.to_thread(_lines, text)
    if kind == "html" and not lines:
        notes.append("It has no text of its own; scripts, which are not run, may write it.")
    if wrapped:
        notes.append(f"Lines longer than {LINE} characters go on in the next line.")
    if len(text) > MAX_TEXT_CHARACTERS:
        notes.append(f"Only the first {MAX_TEXT_CHARACTERS} of {len(text)} characters are kept.")
    return Page(
        url=fetched.url, title=title[:300], lines=lines, links=links, notes=tuple(notes),
        at=fetched.at,
    )  # fmt: skip


async def _convert(
    kind: Kind, fetched: Fetched, converter: Converter, staging: Path
) -> tuple[Converted, bool]:
    body, sound = fetched.body, True
    if kind == "html":
        text, sound = await asyncio.to_thread(web_fetch.decoded_text, body, fetched.charset)
        body = text.encode("utf-8", "replace")
    elif fetched.cut:
        raise Unreadable(f"The {kind.upper()} file did not arrive whole: {_cut_reason(fetched)}.")
    staging.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=staging) as staged:
        folder = Path(staged)
        file = folder / f"page.{kind}"
        await asyncio.to_thread(file.write_bytes, body)
        converted = await converter.convert(
            kind, str(file), base=fetched.url, folder=folder, seconds=_SECONDS
        )
    return converted, sound


def _kind(fetched: Fetched) -> Kind | Literal["text", "binary"]:
    """What kind of content it is: a converter's, `text` or `binary`."""
    head = fetched.body[:8_192].lstrip()
    if head.startswith(b"%PDF-"):
        return "pdf"
    if kind := _DOCUMENTS.get(fetched.media):
        return kind
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "binary"
    if fetched.media in _UNSAID or fetched.media == "text/plain":
        return "html" if fetched.media in _UNSAID and head.lower().startswith(_PAGES) else "text"
    named = fetched.media.startswith("text/") or any(mark in fetched.media for mark in _TEXTS)
    return "text" if named else "binary"


def _lines(text: str) -> tuple[tuple[str, ...], bool]:
    """A page's lines, none longer than LINE, and whether one had to be broken."""
    lines: list[str] = []
    wrapped = False
    for line in text[:MAX_TEXT_CHARACTERS].replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        rest = line.rstrip()
        while len(rest) > LINE:
            wrapped = True
            at = rest.rfind(" ", LINE // 2, LINE)
            at = at + 1 if at > 0 else LINE
            lines.append(rest[:at].rstrip())
            rest = rest[at:]
        lines.append(rest)
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines), wrapped


def _cut_notes(fetched: Fetched) -> list[str]:
    return [f"The page is cut: {_cut_reason(fetched)}."] if fetched.cut else []


def _cut_reason(fetched: Fetched) -> str:
    reasons = {
        "size": "it is too large and was read up to the limit",
        "damaged": "its packed content is damaged",
        "time": "it did not end within the limit of time",
    }
    return f"{reasons[fetched.cut]}, after {len(fetched.body)} bytes"


_MB = 1 << 20
_PAGE = msgspec.msgpack.Decoder(Page)


class PageCache:
    """The kept pages of one host. Its methods block; they run in a thread."""

    def __init__(self, folder: Path, *, seconds: float, megabytes: int, scope: str) -> None:
        """scope: what the task may fetch; pages are shared by tasks that may fetch the same."""
        self._folder = folder
        self._seconds = seconds
        self._max_bytes = megabytes * _MB
        self._scope = scope

    def find(self, address: str) -> Page | None:
        """The kept page of an address, if there is one that is young enough."""
        if not self._seconds:
            return None
        page = read(self._file(address))
        young = page is not None and 0 <= time.time() - page.at <= self._seconds
        return page if young else None

    def keep(self, address: str, page: Page) -> None:
        """Keep a page, and drop the oldest beyond the limit. A full disk keeps none."""
        if not self._seconds:
            return
        with contextlib.suppress(OSError):  # a cache may fail: the page is there all the same
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write(self._file(address), page)
            self._prune()

    def _file(self, address: str) -> Path:
        name = hashlib.sha256(f"{self._scope} {address}".encode()).hexdigest()
        return self._folder / f"{name}.page"

    def _prune(self) -> None:
        kept_entries = sorted(
            ((status.st_mtime, status.st_size, entry.path) for entry, status in self._entries()),
            reverse=True,
        )
        size = 0
        for modified, length, path in kept_entries:
            size += length
            if size > self._max_bytes or time.time() - modified > self._seconds:
                Path(path).unlink(missing_ok=True)

    def _entries(self) -> list[tuple[os.DirEntry[str], os.stat_result]]:
        entries = []
        with os.scandir(self._folder) as folder:
            for entry in folder:
                with contextlib.suppress(FileNotFoundError):  # another rollout dropped it
                    entries.append((entry, entry.stat()))
        return entries


def write(file: Path, page: Page) -> None:
    """Write a page: beside, then in its place."""
    data = zstandard.compress(msgspec.msgpack.encode(page), 3)
    atomic_file.write_atomically(file, data, temporary_path=atomic_file.temporary_sibling(file))


def read(file: Path) -> Page | None:
    """The page in a file; None when it is not there or not sound."""
    try:
        return _PAGE.decode(zstandard.decompress(file.read_bytes()))
    except (OSError, zstandard.ZstdError, msgspec.DecodeError, UnicodeError, MemoryError):
        return None  # damaged bytes may also name a size that no machine has
