"""Lines of a file of any size, read in windows: nothing here holds more than a window in memory.

Works on bytes, so that what is not UTF-8 stays as it is. Knows no paths and no agent.
"""

import os
from typing import BinaryIO, NamedTuple

BLOCK = 1 << 20
LINE_BYTES = 4_000
"""A line is shown up to here."""
COUNT_BYTES = 256 * BLOCK
"""Lines of larger files are not counted, and longer lines not passed over to the next."""


class Line(NamedTuple):
    """One line without its line feed."""

    data: bytes
    more: int
    """Bytes of it that were passed over; from COUNT_BYTES on there may be yet more."""


class Window(NamedTuple):
    """Consecutive lines of a file."""

    first: int
    """Number of the first line, from 1."""
    lines: list[Line]
    full: bool
    """Whether the window ended at its limit of bytes and not of lines."""


def is_binary(file: BinaryIO) -> bool:
    """Whether the first 8 KB hold a NUL byte, as git decides it."""
    file.seek(0)
    return b"\0" in file.read(8192)


def uses_crlf(file: BinaryIO) -> bool:
    """Whether the first line ends with CR LF."""
    file.seek(0)
    return file.readline(BLOCK).endswith(b"\r\n")


def count(file: BinaryIO) -> int | None:
    """Number of lines, a last one without line feed included; None for more than 256 MB."""
    if os.fstat(file.fileno()).st_size > COUNT_BYTES:
        return None
    file.seek(0)
    lines, last = 0, b"\n"
    while block := file.read(BLOCK):
        lines += block.count(b"\n")
        last = block[-1:]
    return lines + (last != b"\n")


def offset_of(file: BinaryIO, number: int) -> int | None:
    """Byte offset where line `number` begins, or would after the last line feed; None if beyond."""
    file.seek(0)
    ahead, at = number - 1, 0
    while ahead:
        block = file.read(BLOCK)
        if not block:
            return None
        feeds = block.count(b"\n")
        if feeds < ahead:
            ahead -= feeds
            at += len(block)
            continue
        place = -1
        for _ in range(ahead):
            place = block.index(b"\n", place + 1)
        return at + place + 1
    return at


def window(file: BinaryIO, first: int, lines: int, most_bytes: int) -> Window:
    """Up to `lines` lines from line `first` on, at most about `most_bytes` in all."""
    start = offset_of(file, first)
    found: list[Line] = []
    if start is None:
        return Window(first, found, False)
    file.seek(start)
    taken = 0
    while len(found) < lines:
        line = _line(file)
        if line is None:
            return Window(first, found, False)
        if found and taken + len(line.data) > most_bytes:
            return Window(first, found, True)
        found.append(line)
        taken += len(line.data) + 8
        if line.more >= COUNT_BYTES:
            break
    return Window(first, found, False)


def _line(file: BinaryIO) -> Line | None:
    data = file.readline(LINE_BYTES + 1)
    if not data:
        return None
    if data.endswith(b"\n"):
        return Line(data[:-1].removesuffix(b"\r"), 0)
    if len(data) <= LINE_BYTES:
        return Line(data, 0)
    return Line(data[:LINE_BYTES], 1 + _skip_line(file))


def _skip_line(file: BinaryIO) -> int:
    """Pass over the rest of a line; bytes that were passed, without the line feed."""
    passed = 0
    while passed < COUNT_BYTES and (block := file.read(BLOCK)):
        place = block.find(b"\n")
        if place >= 0:
            file.seek(place + 1 - len(block), os.SEEK_CUR)
            return passed + place
        passed += len(block)
    return passed
