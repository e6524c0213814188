"""What the eleven file actions give: observations as types, and how these read."""

from typing import ClassVar

import msgspec

from houston_daemon.environments.typed_observation import Observation, Text, render


class FileWindow(Observation, frozen=True, kw_only=True):
    """Numbered lines of one file."""

    kind: ClassVar[str] = "file"
    bulk: ClassVar[tuple[str, ...]] = ("content", "note")
    path: str
    change: str = ""
    """`` (only shown), `created`, `replaced` (a whole file), `edited`."""
    first_line: int = 0
    last_line: int = 0
    total_lines: int | None = None
    """None when the file is too large to count."""
    size: int = 0
    """Bytes."""
    binary: bool = False
    invalid_utf8: bool = False
    """Whether the window holds bytes that are no UTF-8."""
    blind: bool = False
    """A change of a file that was not shown since it last changed."""
    content: str = ""
    note: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a folder."""

    name: str
    type: str
    """`file`, `folder`, `link`, `other`."""
    size: int
    target: str = ""


class Listing(Observation, frozen=True, kw_only=True):
    """One folder."""

    kind: ClassVar[str] = "listing"
    bulk: ClassVar[tuple[str, ...]] = ("entries",)
    path: str
    total: int
    hidden: int
    """Names with a leading dot that were left out."""
    entries: tuple[Entry, ...]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One line that holds the term."""

    path: str
    line: int
    text: str


class Matches(Observation, frozen=True, kw_only=True):
    """Lines that hold a term."""

    kind: ClassVar[str] = "search"
    bulk: ClassVar[tuple[str, ...]] = ("matches", "note")
    query: str
    path: str
    total_results: int
    complete: bool
    """False when a limit of time or number ended the search."""
    matches: tuple[Match, ...]
    note: str = ""


class FoundFiles(Observation, frozen=True, kw_only=True):
    """Files whose name fits."""

    kind: ClassVar[str] = "found"
    bulk: ClassVar[tuple[str, ...]] = ("paths",)
    query: str
    path: str
    total_results: int
    complete: bool
    paths: tuple[str, ...]


class FileInfo(Observation, frozen=True, kw_only=True):
    """The open file."""

    kind: ClassVar[str] = "info"
    path: str
    """Empty when none is open."""
    first_line: int = 0
    last_line: int = 0
    total_lines: int | None = None
    size: int = 0
    modified: float = 0.0
    """Unix time."""


@render.register
def _(result: FileWindow) -> Text:
    deed = {"created": "Created ", "replaced": "Replaced ", "edited": "Edited "}.get(
        result.change, ""
    )
    if result.binary:
        summary = (
            f"{deed}{_line(result.path)}: binary, {result.size} bytes; not shown. {result.note}"
        )
        return Text(summary.rstrip())
    total = "?" if result.total_lines is None else str(result.total_lines)
    span = f"lines {result.first_line}-{result.last_line} of {total}"
    if result.total_lines == 0:
        span = "empty"
    flaw = " Bytes that are not UTF-8 are shown as \ufffd." if result.invalid_utf8 else ""
    head = f"[{deed}{_line(result.path)}: {span}, {result.size} bytes]{flaw} {result.note}".rstrip()
    return Text(head, result.content, "file_goto_line shows any line")


@render.register
def _(result: Listing) -> Text:
    more = result.total - len(result.entries)
    tail = f", {more} more not listed" if more else ""
    hidden = f", {result.hidden} hidden" if result.hidden else ""
    noun = "entry" if result.total == 1 else "entries"
    head = f"{_line(result.path)}: {result.total} {noun}{hidden}{tail}"
    hint = "list a folder below, or find_file with a pattern"
    return Text(head, "\n".join(map(_entry, result.entries)), hint)


def _line(name: str) -> str:
    """A name with its line feeds as glyphs: it can make no lines that look like ours."""
    return name.replace("\n", "\u23ce").replace("\r", "\u240d")


def _entry(entry: Entry) -> str:
    name = _line(entry.name)
    if entry.type == "folder":
        return f"{name}/"
    if entry.type == "link":
        return f"{name} -> {_line(entry.target)}"
    return f"{name}  {entry.size}" if entry.type == "file" else f"{name}  (special)"


@render.register
def _(result: Matches) -> Text:
    lines = [f"{_line(match.path)}:{match.line}: {match.text}" for match in result.matches]
    count = _count(result.total_results, result.complete, "line")
    head = f"{count} with {result.query!r} in {_line(result.path)}"
    more = result.total_results - len(lines)
    tail = f"; the first {len(lines)}:" if more else ":" if lines else "."
    note = f" {result.note}" if result.note else ""
    return Text(head + tail + note, "\n".join(lines), "search a smaller folder")


@render.register
def _(result: FoundFiles) -> Text:
    count = _count(result.total_results, result.complete, "file")
    head = f"{count} named {result.query!r} in {_line(result.path)}"
    tail = f"; the first {len(result.paths)}:" if result.total_results > len(result.paths) else ":"
    paths = "\n".join(map(_line, result.paths))
    return Text(head + (tail if paths else "."), paths, "use a narrower pattern")


def _count(number: int, complete: bool, noun: str) -> str:
    least = "" if complete else "At least "
    return f"{least}{number or 'no'} {noun}{'' if number == 1 else 's'}".capitalize()


@render.register
def _(result: FileInfo) -> Text:
    if not result.path:
        return Text("No file is open.")
    total = "?" if result.total_lines is None else result.total_lines
    span = f"lines {result.first_line}-{result.last_line} of {total} were shown last"
    return Text(f"Open: {_line(result.path)}, {result.size} bytes; {span}.")
