"""Bytes of a page, from the network or from the cache, are a page or none: never an exception."""

import gzip
from pathlib import Path

import msgspec
import pytest

from houston_daemon.environments.workstation import web_fetch, web_page
from houston_daemon.environments.workstation.web_page import Page

PAGE = Page(url="http://a/", title="t", lines=("line",) * 50, links=(), notes=(), at=1.0)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_nothing_is_kept_of_what_follows_packed_content(coding: str) -> None:
    """zlib would keep it, copied with every piece: a server that never ends took all memory."""
    packed = gzip.compress(b"words")
    unpacker = web_fetch.Unpacker(coding, 1 << 20)
    unpacker.take(packed if coding == "gzip" else packed[10:-8])
    assert unpacker.full and unpacker.ended
    for _ in range(4):
        unpacker.take(b"x" * 65_536)
    assert unpacker.data == b"words"
    assert unpacker._stream is not None and len(unpacker._stream.unused_data) < 65_536


@pytest.mark.parametrize(
    ("limit", "damaged", "why"),
    [(1 << 20, True, "its packed content is damaged"), (1_000, False, "it is too large")],
)
def test_a_page_that_is_cut_says_why(limit: int, damaged: bool, why: str) -> None:
    packed = bytearray(gzip.compress(b"".join(str(n * n).encode() for n in range(20_000))))
    middle = len(packed) // 2
    packed[middle : middle + 50] = bytes(50) if damaged else packed[middle : middle + 50]
    unpacker = web_fetch.Unpacker("gzip", limit)
    for at in range(0, len(packed), 4_096):
        unpacker.take(bytes(packed[at : at + 4_096]))
    assert unpacker.full and not unpacker.ended
    fetched = web_fetch.Fetched("u", "text/html", "", bytes(unpacker.data), unpacker.cut, 0.0)
    (note,) = web_page._cut_notes(fetched)
    assert why in note and f"after {len(unpacker.data)} bytes" in note


@pytest.mark.parametrize("label", ["unicode_escape", "Raw-Unicode-Escape", "utf-16", "hz", "rot13"])
def test_a_page_is_text_whatever_charset_it_claims(label: str) -> None:
    for data in (rb"\ud800 \udfff words", b"\x00\xd8w\x00", bytes(range(256))):
        found, _ = web_fetch.decoded_text(data, label)
        assert msgspec.msgpack.encode(found)
    assert r"\ud800 words" in web_fetch.decoded_text(rb"\ud800 words", "unicode_escape")[0]


def test_a_damaged_page_of_the_cache_is_none(tmp_path: Path) -> None:
    """Some flips make its header claim exabytes."""
    file = tmp_path / "page"
    web_page.write(file, PAGE)
    sound = file.read_bytes()
    for at in (*range(16), *range(16, len(sound), 9)):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << bit
            file.write_bytes(damaged)
            found = web_page.read(file)
            assert found is None or isinstance(found, Page)
