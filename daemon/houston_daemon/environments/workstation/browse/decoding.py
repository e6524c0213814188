"""Bytes of a page as they came over the network become bytes and text, within limits.

A compressed body is unpacked only as far as a page may be long, however much is packed in it.
"""

import codecs
import re
import zlib

_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.I)
_DECLARED = re.compile(rb"^<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_:.-]{1,40})", re.I)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WEB = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030",
        "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}  # fmt: skip
"""What browsers read these names as (WHATWG Encoding, §4.2)."""
_NO_TEXT = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined",
                      "utf-7", "mbcs", "oem"})  # fmt: skip
"""Of Python's codecs, by its own names: those that no page is written in."""


class Damaged(Exception):
    """A body that cannot be unpacked; the text is for the agent."""


class Unpacker:
    """Unpacks a body piece by piece; `coding` is the answer's Content-Encoding."""

    def __init__(self, coding: str, limit: int) -> None:
        self._limit = limit
        self._kinds = [one for one in re.split(r"[,\s]+", coding.lower()) if one != "identity"]
        self._kinds = [one for one in self._kinds if one]
        if self._kinds not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
            raise Damaged(f"Its content is packed as {coding[:40]!r}, which was not asked for.")
        self._stream: zlib._Decompress | None = None
        self.data = bytearray()
        """What is unpacked so far, never longer than the limit."""

    @property
    def full(self) -> bool:
        """Whether no more is taken: the limit is reached, or the packed content has ended."""
        return self.ended or len(self.data) >= self._limit

    @property
    def ended(self) -> bool:
        """Whether the packed content has said that it is over, whatever else comes."""
        return self._stream is not None and self._stream.eof

    def take(self, piece: bytes) -> None:
        """Unpack one more piece. Raises Damaged when not even its beginning can be unpacked."""
        room = self._limit - len(self.data)
        if self.full:  # zlib would keep whatever comes after the end
            return
        if not self._kinds:
            self.data += piece[:room]
            return
        if self._stream is None:
            self._stream = zlib.decompressobj(self._window(piece))
        try:
            self.data += self._stream.decompress(piece, room)
        except zlib.error:
            if not self.data:
                raise Damaged("Its packed content is damaged.") from None
            self._limit = len(self.data)

    def _window(self, piece: bytes) -> int:
        if self._kinds != ["deflate"]:
            return 16 + zlib.MAX_WBITS
        # Some servers send the bare stream instead of the zlib format (RFC 9110, §8.4.1.2).
        return zlib.MAX_WBITS if piece[:1] == b"\x78" else -zlib.MAX_WBITS


def text(data: bytes, declared: str = "") -> tuple[str, bool]:
    """The text of a page's bytes, and whether every byte had a meaning.

    declared: the charset of its Content-Type. The order is byte order mark, header, `<meta>` or
    XML declaration, UTF-8; one that does not fit gives way to the next, the last to Windows-1252.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace"), True
    found = _META.search(data[:4_096]) or _DECLARED.search(data[:300])
    inside = found.group(1).decode("ascii") if found else ""
    candidates = [name for name in map(_known, (declared, inside, "utf-8")) if name]
    if candidates[0].startswith("cp125"):  # what is sound UTF-8 is hardly ever anything else
        candidates.insert(0, "utf-8")
    for name in candidates:
        try:
            return _whole(data, name), True
        except UnicodeError:
            continue
    return data.decode("utf-8" if _mostly_utf8(data) else "cp1252", "replace"), False


def _known(label: str) -> str:
    """The codec that a label means; empty for what is none of text."""
    try:
        name = codecs.lookup(label.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return ""
    return "" if name in _NO_TEXT or not _is_text(name) else _WEB.get(name, name)


def _is_text(name: str) -> bool:
    try:  # of nothing at all every codec makes text, also rot13
        return isinstance(b"a".decode(name), str)
    except UnicodeError:
        return True
    except (LookupError, AssertionError):
        return False


def _whole(data: bytes, name: str) -> str:
    """Decoded strictly, but a page that was cut may end inside a character."""
    return codecs.getincrementaldecoder(name)("strict").decode(data)


def _mostly_utf8(data: bytes) -> bool:
    sample = data[:100_000].decode("utf-8", "replace")
    return sample.count("\ufffd") * 100 < len(sample)
